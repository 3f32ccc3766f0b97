// Tables and JSON of compare and gate, and the escaping that all reports share; see report.h.
// Contract: what a metric is called and how it is computed stands in lib/metrics.cc alone.
#include "lib/report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/gguf.h"
#include "formats/text.h"
#include "lib/error.h"

namespace logitgate {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kListedRows = 20;

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(number_text(x)); }
Json token(uint32_t id) { return id == kNoToken ? Json(nullptr) : Json(id); }
std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }

Json provenance(const DumpHeader& header, const std::string& name) {
  return {{"file", name},
          {"model_name", header.model_name},
          {"architecture", header.architecture},
          {"weights_digest", header.weights_digest},
          {"weights_types", header.weights_types},
          {"command", header.command},
          {"precision", header.precision},
          {"backend", header.backend},
          {"device", header.device},
          {"algorithms", header.algorithms},
          {"tool", header.tool},
          {"rows", header.rows},
          {"store", to_string(header.store)},
          {"log_probs", header.log_probs},
          {"lossy", header.lossy},
          {"n_vocab", header.n_vocab}};
}

// Sets json["a"]["b"] for the key "a.b".
void set_path(Json& json, std::string_view key, Json value) {
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) {
    json[std::string(key)] = std::move(value);
  } else {
    set_path(json[std::string(key.substr(0, dot))], key.substr(dot + 1), std::move(value));
  }
}

std::string describe(const DumpHeader& header, const std::string& name) {
  const auto or_unknown = [](const std::string& text) { return text.empty() ? "unknown" : printable(text); };
  return fmt::format(
      "{}: {} ({}), {}, precision {}, {} on {}, stored {}{}{}, weights {}", printable(name),
      or_unknown(header.model_name), or_unknown(header.architecture), or_unknown(header.command),
      or_unknown(header.precision), or_unknown(header.backend), or_unknown(header.device),
      to_string(header.store), header.log_probs ? ", log-probabilities" : "",
      header.lossy ? ", lossy source" : "",
      header.weights_digest.empty() ? "unknown" : printable(header.weights_digest.substr(0, 12)));
}

std::string sides(const DumpHeader& reference, const std::string& reference_name, const DumpHeader& candidate,
                  const std::string& candidate_name) {
  std::string text = fmt::format("reference  {}\ncandidate  {}\n", describe(reference, reference_name),
                                 describe(candidate, candidate_name));
  if (!reference.weights_digest.empty() && !candidate.weights_digest.empty() &&
      reference.weights_digest != candidate.weights_digest) {
    text += "note       the weights differ\n";
  }
  return text;
}

std::string at(const RowKey& key) {
  return fmt::format("record '{}', position {}", printable(key.record), key.position);
}

std::string name_of(uint32_t id, const TokenNames& names) {
  if (id == kNoToken) return "none";
  return id < names.size() ? fmt::format("{} '{}'", id, printable(names[id])) : fmt::to_string(id);
}

Json json_of(const GateRow& row) {
  Json json = {
      {"record", row.key.record},
      {"position", row.key.position},
      {"class", to_string(row.verdict.row_class)},
      {"reason", row.verdict.reason == Reason::none ? Json(nullptr) : Json(to_string(row.verdict.reason))},
      {"max_diff", number(row.max_diff)},
      {"max_diff_token", token(row.max_token)},
      {"expected_drift", number(row.expected)},
      {"reference", {{"argmax", token(row.reference_argmax)}, {"margin", number(row.reference_margin)}}},
      {"candidate", {{"argmax", token(row.candidate_argmax)}, {"margin", number(row.candidate_margin)}}}};
  if (row.coverage != 1) json["coverage"] = number(row.coverage);
  return json;
}

Json gate_bounds(const GateResult& r) {
  Json bounds = {{"max_diff", r.bounds.automatic ? number(r.most_ceiling) : number(r.bounds.max_diff.value)},
                 {"margin", number(r.bounds.margin.value)},
                 {"max_diff_source", r.bounds.max_diff.source},
                 {"margin_source", r.bounds.margin.source}};
  if (r.bounds.automatic) {
    bounds["auto"] = {{"factor", ExpectedDrift::kAutoFactor},
                      {"least_max_diff", number(r.least_ceiling)},
                      {"most_max_diff", number(r.most_ceiling)}};
  }
  if (r.bounds.max_kl) bounds["max_kl"] = number(*r.bounds.max_kl);
  if (r.bounds.min_top1) bounds["min_top1"] = number(*r.bounds.min_top1);
  return bounds;
}

Json gate_head(const GateResult& r) {
  Json json = {
      {"pass", r.pass},
      {"verdict", to_string(r.verdict)},
      {"counts", {{"match", r.counts[0]}, {"near_tie_flip", r.counts[1]}, {"structured", r.counts[2]}}},
      {"bounds", gate_bounds(r)},
      {"strict", r.strict},
      {"allow_inf", r.allow_inf},
      {"violations", r.violations},
      {"records", r.records},
      {"rows_compared", r.rows_compared},
      {"rows_expected", r.rows_expected},
      {"max_diff", number(r.max_diff)},
      {"max_diff_at", {{"record", r.max_diff_at.record}, {"position", r.max_diff_at.position}}},
      {"drift_over_expected", number(r.drift_over_expected)},
      {"expected_drift", number(r.expected_drift)},
      {"top1_agreement", number(r.top1_agreement)},
      {"reference", provenance(r.reference, r.reference_name)},
      {"candidate", provenance(r.candidate, r.candidate_name)}};
  if (!r.assumption.empty()) json["expected_drift_assumes"] = r.assumption;
  if (r.bounds.max_kl) json["max_kl"] = number(r.max_kl);
  if (r.topk) json["coverage_min"] = number(r.min_coverage);
  if (r.stopped_early) json["stopped_early"] = true;
  return json;
}

std::string gate_row_line(const GateRow& row) {
  const std::string reason =
      row.verdict.reason == Reason::none ? "" : fmt::format(" ({})", to_string(row.verdict.reason));
  return fmt::format("  {}: {}{}, max_diff {:.6g}, argmax {} against {}, margin {:.6g}\n", at(row.key),
                     to_string(row.verdict.row_class), reason, row.max_diff,
                     name_of(row.reference_argmax, {}), name_of(row.candidate_argmax, {}),
                     row.reference_margin);
}

std::string gate_bounds_line(const GateResult& r) {
  const std::string ceiling =
      r.bounds.automatic ? fmt::format("auto, {:.3g} to {:.3g} ({} x expected arithmetic drift + storage)",
                                       r.least_ceiling, r.most_ceiling, ExpectedDrift::kAutoFactor)
                         : number_text(r.bounds.max_diff.value);
  std::string line =
      fmt::format("bounds     max-diff {} ({}), margin {} ({})", ceiling, r.bounds.max_diff.source,
                  number_text(r.bounds.margin.value), r.bounds.margin.source);
  if (r.bounds.max_kl) line += fmt::format(", max-kl {}", number_text(*r.bounds.max_kl));
  if (r.bounds.min_top1) line += fmt::format(", min-top1 {}", number_text(*r.bounds.min_top1));
  return line + (r.strict ? ", strict\n" : "\n");
}

}  // namespace

TokenNames load_token_names(const std::string& model) {
  const GgufFile file = GgufFile::open(model);
  const TokenNames names = file.get_strings("tokenizer.ggml.tokens").value_or(TokenNames());
  if (names.empty()) {
    fail(ErrorCode::corrupt, "{}: tokenizer.ggml.tokens: missing; --vocab needs a model with its vocabulary",
         model);
  }
  return names;
}

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : printable(text, std::string::npos)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string compare_table(const CompareResult& result, const TokenNames& names) {
  const Totals& totals = result.totals;
  std::string text = sides(result.reference, result.reference_name, result.candidate, result.candidate_name);
  text += fmt::format("compared   {} records, {} rows of {}, n_vocab {}\n\n", result.records, totals.rows,
                      result.rows_expected, result.reference.n_vocab);
  for (const SummaryMetric& metric : summary_metrics()) {
    const double value = metric.value(totals);
    if (value == metric.unremarkable) continue;
    const std::string shown = metric.count ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value);
    text += fmt::format("{:<26} {}", metric.label, shown);
    if (metric.key == "max_abs_diff" && totals.finite_rows() > 0) {
      text += fmt::format("  at {}, token {}", at(totals.max_at), name_of(totals.max_token, names));
    }
    if (metric.key == "non_finite_rows" && totals.non_finite_rows > 0) {
      text += fmt::format("  first at {}", at(totals.first_non_finite));
    }
    text += '\n';
  }
  return text + (result.identical() ? "\nevery row is bit-identical\n" : "\nthe dumps differ\n");
}

std::string compare_json(const CompareResult& result, const TokenNames& names) {
  const Totals& totals = result.totals;
  Json json = {{"schema_version", 1},
               {"reference", provenance(result.reference, result.reference_name)},
               {"candidate", provenance(result.candidate, result.candidate_name)},
               {"records", result.records},
               {"rows", totals.rows},
               {"rows_expected", result.rows_expected},
               {"n_vocab", result.reference.n_vocab}};
  for (const SummaryMetric& metric : summary_metrics()) {
    const double value = metric.value(totals);
    set_path(json, metric.key, metric.count ? Json(static_cast<uint64_t>(value)) : number(value));
    if (metric.key != "max_abs_diff") continue;
    Json& where = json["max_abs_diff_at"];
    if (totals.finite_rows() == 0) continue;
    where = {
        {"record", totals.max_at.record}, {"position", totals.max_at.position}, {"token", totals.max_token}};
    if (totals.max_token < names.size()) where["token_text"] = names[totals.max_token];
  }
  if (totals.non_finite_rows > 0) {
    json["first_non_finite"] = {{"record", totals.first_non_finite.record},
                                {"position", totals.first_non_finite.position}};
  }
  json["identical"] = result.identical();
  return dump(json) + "\n";
}

std::string gate_table(const GateResult& r) {
  std::string text = sides(r.reference, r.reference_name, r.candidate, r.candidate_name);
  text += gate_bounds_line(r);
  text += fmt::format("rows       {} of {} in {} records: {} match, {} near-tie-flip, {} structured\n",
                      r.rows_compared, r.rows_expected, r.records, r.counts[0], r.counts[1], r.counts[2]);
  text += fmt::format("drift      max_diff {:.6g} at {}\n", r.max_diff, at(r.max_diff_at));
  text += fmt::format(
      "expected   max_diff / expected drift {:.3g} at {}, where {:.3g} is expected of {} against {}\n",
      r.drift_over_expected, at(r.drift_at), r.expected_drift,
      r.candidate.precision.empty() ? "unknown" : printable(r.candidate.precision),
      r.reference.precision.empty() ? "unknown" : printable(r.reference.precision));
  if (!r.assumption.empty()) text += fmt::format("           ({})\n", r.assumption);
  if (r.bounds.max_kl) text += fmt::format("KLD        max {:.6g}\n", r.max_kl);
  if (r.bounds.min_top1) text += fmt::format("argmax     {:.6g} of the rows agree\n", r.top1_agreement);
  if (r.topk) {
    text += fmt::format("coverage   at least {:.6g} of the reference's probability is on the ids compared\n",
                        r.min_coverage);
  }
  const std::vector<GateRow> rows = r.failing.sorted();
  for (size_t i = 0; i < rows.size() && i < kListedRows; ++i) text += gate_row_line(rows[i]);
  const uint64_t failing = r.counts[1] + r.counts[2];
  if (failing > kListedRows) text += fmt::format("  and {} more\n", failing - kListedRows);
  for (const std::string& violation : r.violations) text += fmt::format("violated   {}\n", violation);
  if (r.stopped_early) text += "stopped at the first structured row\n";
  return text + fmt::format("{}: {}\n", r.pass ? "PASS" : "FAIL", to_string(r.verdict));
}

std::string gate_json(const GateResult& result) {
  Json json = {{"schema_version", 1}};
  json.update(gate_head(result));
  Json& rows = json["rows"] = Json::array();
  for (const WorstRows* list : {&result.failing, &result.matches}) {
    for (const GateRow& row : list->sorted()) rows.push_back(json_of(row));
  }
  return dump(json) + "\n";
}

std::string gate_json_begin() { return "{\"schema_version\": 1, \"rows\": [\n"; }
std::string gate_json_row(const GateRow& row) {
  return json_of(row).dump(-1, ' ', false, Json::error_handler_t::replace);
}
std::string gate_json_end(const GateResult& result) {
  return "\n],\n" + dump(gate_head(result)).substr(1) + "\n";
}

}  // namespace logitgate
