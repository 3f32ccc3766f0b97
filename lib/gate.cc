// Classifies rows and sums up a gate's run; see gate.h.
// Contract: rows are measured by several threads and judged in their order, so the result is that of one thread.
#include "lib/gate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <thread>

#include "lib/error.h"
#include "lib/ordered_map.h"
#include "lib/row_work.h"

namespace logitgate {
namespace {

// A finite number >= 0, the whole text, in C's locale; nullopt for anything else.
std::optional<double> parse_bound(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  if (!(value >= 0)) return std::nullopt;
  return value == 0 ? 0 : value;  // -0 is 0
}

double require_bound(const std::string& source, std::string_view text, bool or_auto) {
  if (const std::optional<double> value = parse_bound(text)) return *value;
  fail(ErrorCode::usage, "{}: '{}' is not a bound; expected a finite number >= 0{}", source, text,
       or_auto ? " or auto" : "");
}

struct Source {
  std::string name;
  std::optional<std::string> text;
  bool or_auto;
};

// The first source that is set decides; `automatic` is null where auto is not a value.
void resolve(Bound& bound, bool* automatic, const std::vector<Source>& sources) {
  for (const Source& source : sources) {
    if (!source.text) continue;
    bound.source = source.name;
    if (source.or_auto && *source.text == "auto") {
      *automatic = true;
    } else {
      bound.value = require_bound(source.name, *source.text, source.or_auto);
    }
    return;
  }
}

double max_of(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b); }

// True where x is larger than what was seen so far, NaN being larger than anything.
bool exceeds(double x, double seen) {
  if (std::isnan(seen)) return false;
  return std::isnan(x) || x > seen;
}

class Judge {
 public:
  Judge(const DumpPair& dumps, const GateOptions& options)
      : options_(options), drift_(dumps.reference(), dumps.candidate()) {
    result_.reference = dumps.reference();
    result_.candidate = dumps.candidate();
    result_.reference_name = dumps.reference_name();
    result_.candidate_name = dumps.candidate_name();
    result_.bounds = options.bounds;
    result_.strict = options.strict;
    result_.allow_inf = options.allow_inf;
    result_.assumption = drift_.assumption();
    result_.topk =
        result_.reference.store.type == StoreType::topk || result_.candidate.store.type == StoreType::topk;
  }

  // False where the run may stop.
  bool add(const RowKey& key, const RowStats& stats) {
    const GateRow row = judge(key, stats);
    ++result_.counts[static_cast<size_t>(row.verdict.row_class)];
    agreeing_ += stats.same_argmax() && (stats.finite || stats.same_infinities) ? 1 : 0;
    result_.verdict = std::max(result_.verdict, row.verdict.row_class);
    note_extremes(row);
    (row.verdict.row_class == RowClass::match ? result_.matches : result_.failing).add(row);
    if (options_.on_row) options_.on_row(row);
    ++result_.rows_compared;
    result_.stopped_early = options_.fail_fast && row.verdict.row_class == RowClass::structured;
    return !result_.stopped_early;
  }

  GateResult finish(const DumpPair& dumps) {
    result_.records = dumps.n_records();
    result_.rows_expected = dumps.n_rows();
    result_.top1_agreement = static_cast<double>(agreeing_) / static_cast<double>(result_.rows_compared);
    if (options_.bounds.max_kl && !(result_.max_kl <= *options_.bounds.max_kl))
      result_.violations.push_back("max_kl");
    if (options_.bounds.min_top1 && !(result_.top1_agreement >= *options_.bounds.min_top1)) {
      result_.violations.push_back("min_top1");
    }
    const RowClass worst_allowed = options_.strict ? RowClass::match : RowClass::near_tie_flip;
    result_.pass = result_.verdict <= worst_allowed && result_.violations.empty();
    return std::move(result_);
  }

 private:
  GateRow judge(const RowKey& key, const RowStats& stats) {
    GateRow row;
    row.key = key;
    row.order = result_.rows_compared;
    row.expected = drift_.expected(stats);
    row.ceiling = options_.bounds.automatic ? drift_.ceiling(stats) : options_.bounds.max_diff.value;
    row.verdict = classify(stats, row.ceiling, options_.bounds.margin.value, options_.allow_inf);
    require_decided(key, stats, row.verdict);
    row.max_diff = stats.max_abs;
    row.max_token = stats.max_token;
    row.kld = stats.kld;
    row.coverage = stats.coverage;
    row.reference_argmax = stats.reference.first;
    row.candidate_argmax = stats.candidate.first;
    row.reference_margin = stats.reference.margin();
    row.candidate_margin = stats.candidate.margin();
    return row;
  }

  // What is structured by what both top-k rows hold is structured for the full rows too; anything else needs more.
  void require_decided(const RowKey& key, const RowStats& stats, const RowVerdict& verdict) const {
    if (verdict.reason == Reason::non_finite || verdict.reason == Reason::drift) return;
    const bool flip = verdict.row_class != RowClass::match;
    if (stats.decided && (stats.margin_known || !flip)) return;
    fail(ErrorCode::incomparable,
         "{}: record '{}': position {}: the top-k rows do not hold {}; use a larger K or full dumps",
         result_.candidate_name, key.record, key.position,
         stats.decided ? "the second logit that the margin needs" : "each other's argmax");
  }

  void note_extremes(const GateRow& row) {
    const bool first = result_.rows_compared == 0;
    if (first || exceeds(row.max_diff, result_.max_diff)) {
      result_.max_diff = row.max_diff;
      result_.max_diff_at = row.key;
    }
    const double over = row.max_diff / row.expected;
    if (first || exceeds(over, result_.drift_over_expected)) {
      result_.drift_over_expected = over;
      result_.expected_drift = row.expected;
      result_.drift_at = row.key;
    }
    result_.least_ceiling = first ? row.ceiling : std::min(result_.least_ceiling, row.ceiling);
    result_.most_ceiling = first ? row.ceiling : std::max(result_.most_ceiling, row.ceiling);
    result_.max_kl = max_of(result_.max_kl, row.kld);
    result_.min_coverage = std::min(result_.min_coverage, row.coverage);
  }

  const GateOptions& options_;
  ExpectedDrift drift_;
  GateResult result_;
  uint64_t agreeing_ = 0;
};

}  // namespace

std::string_view to_string(RowClass row_class) {
  switch (row_class) {
    case RowClass::match:
      return "match";
    case RowClass::near_tie_flip:
      return "near-tie-flip";
    case RowClass::structured:
      break;
  }
  return "structured";
}

std::string_view to_string(Reason reason) {
  switch (reason) {
    case Reason::none:
      break;
    case Reason::wide_flip:
      return "wide-flip";
    case Reason::drift:
      return "drift";
    case Reason::non_finite:
      return "non-finite";
  }
  return "";
}

GateBounds resolve_bounds(const BoundTexts& texts, const Environment& environment) {
  const auto variable = [&environment](const char* name) -> std::optional<std::string> {
    const char* text = environment(name);
    return text != nullptr ? std::optional<std::string>(text) : std::nullopt;
  };
  GateBounds bounds;
  resolve(bounds.max_diff, &bounds.automatic,
          {{"--max-diff", texts.max_diff, true},
           {"LOGITGATE_MAX_DIFF", variable("LOGITGATE_MAX_DIFF"), true},
           {"MEMRA_PRIME_GATE_MAXDIFF", variable("MEMRA_PRIME_GATE_MAXDIFF"), false}});
  resolve(bounds.margin, nullptr,
          {{"--margin", texts.margin, false},
           {"LOGITGATE_MARGIN", variable("LOGITGATE_MARGIN"), false},
           {"MEMRA_PRIME_GATE_MARGIN", variable("MEMRA_PRIME_GATE_MARGIN"), false}});
  if (texts.max_kl) bounds.max_kl = require_bound("--max-kl", *texts.max_kl, false);
  if (texts.min_top1) {
    bounds.min_top1 = require_bound("--min-top1", *texts.min_top1, false);
    if (!(*bounds.min_top1 <= 1)) {
      fail(ErrorCode::usage, "--min-top1: '{}' is not a share; expected a number from 0 to 1",
           *texts.min_top1);
    }
  }
  return bounds;
}

RowVerdict classify(const RowStats& row, double max_diff, double margin, bool allow_inf) {
  if (!row.finite && !(allow_inf && row.same_infinities)) return {RowClass::structured, Reason::non_finite};
  if (!(row.max_abs <= max_diff)) return {RowClass::structured, Reason::drift};
  if (row.same_argmax()) return {RowClass::match, Reason::none};
  if (row.reference.margin() <= margin) return {RowClass::near_tie_flip, Reason::none};
  return {RowClass::structured, Reason::wide_flip};
}

bool is_worse(const GateRow& a, const GateRow& b) {
  if (a.verdict.row_class != b.verdict.row_class) return a.verdict.row_class > b.verdict.row_class;
  if (a.verdict.reason != b.verdict.reason) return a.verdict.reason > b.verdict.reason;
  const bool a_nan = std::isnan(a.max_diff), b_nan = std::isnan(b.max_diff);
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.max_diff != b.max_diff) return a.max_diff > b.max_diff;
  return a.order < b.order;
}

void WorstRows::add(const GateRow& row) {
  if (heap_.size() < capacity_) {
    heap_.push_back(row);
    std::push_heap(heap_.begin(), heap_.end(), is_worse);
  } else if (is_worse(row, heap_.front())) {
    std::pop_heap(heap_.begin(), heap_.end(), is_worse);
    heap_.back() = row;
    std::push_heap(heap_.begin(), heap_.end(), is_worse);
  }
}

std::vector<GateRow> WorstRows::sorted() const {
  std::vector<GateRow> rows = heap_;
  std::sort(rows.begin(), rows.end(), is_worse);
  return rows;
}

GateResult run_gate(DumpPair& dumps, const GateOptions& options) {
  Judge judge(dumps, options);
  MeasureOptions measure;
  measure.kld = options.bounds.max_kl.has_value();
  measure.log_probs = dumps.reference().log_probs || dumps.candidate().log_probs;
  measure_pairs(dumps, measure, options.threads, [&](const RowKey& key, const RowStats& stats) {
    const bool go_on = judge.add(key, stats);
    if (options.on_progress) options.on_progress(dumps.n_records(), dumps.n_rows());
    return go_on;
  });
  return judge.finish(dumps);
}

}  // namespace logitgate
