// The gate's table, row by row, its bounds from every source, and its verdict over many rows.
// Contract: rows are given as logits, so what is tested is the whole way from logits to a class.
#include "lib/gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "lib/report.h"
#include "tests/support/memory_dump.h"

namespace logitgate {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using Row = std::vector<float>;

RowStats measure(const Row& r, const Row& c, bool log_probs = false) {
  RowView a, b;
  a.f32 = r.data();
  b.f32 = c.data();
  a.n_vocab = b.n_vocab = static_cast<uint32_t>(r.size());
  MeasureOptions options;
  options.log_probs = log_probs;
  return measure_row(a, b, options);
}

struct Case {
  const char* what;
  Row reference, candidate;
  double max_diff, margin;
  bool allow_inf;
  const char* expected;  // class, or class/reason
};

std::string judged(const Case& c) {
  const RowVerdict verdict = classify(measure(c.reference, c.candidate), c.max_diff, c.margin, c.allow_inf);
  std::string text(to_string(verdict.row_class));
  if (verdict.reason != Reason::none) text += fmt::format("/{}", to_string(verdict.reason));
  return text;
}

TEST(Gate, TheTableRowByRow) {
  const double one_up = std::nextafter(1.0, 2.0);
  const double one_down = std::nextafter(1.0, 0.0);
  const Case cases[] = {
      // Finiteness comes first.
      {"NaN in the reference", {5, kNaN, 1}, {5, 2, 1}, 8, 1, false, "structured/non-finite"},
      {"NaN in the candidate", {5, 2, 1}, {5, kNaN, 1}, 8, 1, false, "structured/non-finite"},
      {"NaN in both, same place", {5, kNaN, 1}, {5, kNaN, 1}, 8, 1, false, "structured/non-finite"},
      {"NaN is never allowed", {5, kNaN, 1}, {5, kNaN, 1}, 8, 1, true, "structured/non-finite"},
      {"all NaN", {kNaN, kNaN}, {kNaN, kNaN}, 8, 1, true, "structured/non-finite"},
      {"NaN at the argmax's place", {kNaN, 2, 1}, {9, 2, 1}, 8, 1, false, "structured/non-finite"},
      {"+inf in the reference", {kInf, 2, 1}, {5, 2, 1}, 8, 1, true, "structured/non-finite"},
      {"+inf in the candidate", {5, 2, 1}, {kInf, 2, 1}, 8, 1, true, "structured/non-finite"},
      {"-inf in the candidate", {5, 2, 1}, {5, 2, -kInf}, 8, 1, true, "structured/non-finite"},
      {"same -inf, not allowed", {5, 2, -kInf}, {5, 2, -kInf}, 8, 1, false, "structured/non-finite"},
      {"same -inf, allowed", {5, 2, -kInf}, {5, 2, -kInf}, 8, 1, true, "match"},
      {"same +inf, not allowed", {kInf, 2, 1}, {kInf, 2, 1}, 8, 1, false, "structured/non-finite"},
      {"same +inf, allowed", {kInf, 2, 1}, {kInf, 2, 1}, 8, 1, true, "match"},
      {"inf of the other sign", {5, 2, -kInf}, {5, 2, kInf}, 8, 1, true, "structured/non-finite"},
      {"inf in another place", {5, -kInf, 1}, {5, 1, -kInf}, 8, 1, true, "structured/non-finite"},
      {"same -inf, drift beside it", {5, 2, -kInf}, {5, -7, -kInf}, 8, 1, true, "structured/drift"},
      {"same -inf, wide flip beside it", {5, 2, -kInf}, {2, 5, -kInf}, 8, 1, true, "structured/wide-flip"},
      {"both rows all -inf", {-kInf, -kInf}, {-kInf, -kInf}, 8, 1, true, "match"},
      {"an infinite ceiling does not hide NaN",
       {5, kNaN},
       {5, 1},
       HUGE_VAL,
       HUGE_VAL,
       true,
       "structured/non-finite"},
      // Then the ceiling.
      {"drift exactly at the ceiling", {5, 2}, {5, 1}, 1, 1, false, "match"},
      {"drift one ulp above the ceiling", {5, 2}, {5, 1}, one_down, 1, false, "structured/drift"},
      {"drift wins over a near tie", {5, 4.9f}, {-5, 4.9f}, 8, 1, false, "structured/drift"},
      {"a ceiling of 0 takes equal rows", {5, 2}, {5, 2}, 0, 0, false, "match"},
      {"a ceiling of 0 takes nothing else",
       {5, 2},
       {5, std::nextafter(2.0f, 3.0f)},
       0,
       0,
       false,
       "structured/drift"},
      // Then the argmax.
      {"equal rows", {5, 2, 1}, {5, 2, 1}, 8, 1, false, "match"},
      {"a tie goes to the lower id on both sides", {3, 5, 5}, {3, 5, 5}, 8, 1, false, "match"},
      {"a tie against its lower id", {3, 5, 5}, {3, 5, 4.9f}, 8, 0, false, "match"},
      {"a tie against its higher id", {3, 5, 5}, {3, 4.9f, 5}, 8, 0, false, "near-tie-flip"},
      {"all-equal rows", {2, 2, 2, 2}, {2, 2, 2, 2}, 8, 0, false, "match"},
      {"all-equal reference, other argmax: margin 0",
       {2, 2, 2, 2},
       {2, 2, 3, 2},
       8,
       0,
       false,
       "near-tie-flip"},
      {"-0 and 0 tie", {-0.0f, 0.0f}, {0.0f, -0.0f}, 8, 0, false, "match"},
      {"a vocabulary of one", {7}, {6}, 8, 0, false, "match"},
      // Then the margin.
      {"margin exactly at the bound", {5, 4, 0}, {4, 5, 0}, 8, 1, false, "near-tie-flip"},
      {"margin one ulp above the bound", {5, 4, 0}, {4, 5, 0}, 8, one_down, false, "structured/wide-flip"},
      {"margin below a bound one ulp up", {5, 4, 0}, {4, 5, 0}, 8, one_up, false, "near-tie-flip"},
      {"the margin is the reference's", {5, 4.5f, 0}, {0, 5, 0}, 8, 1, false, "near-tie-flip"},
      {"whatever the candidate's is", {5, 2, 0}, {4.9f, 5, 0}, 8, 1, false, "structured/wide-flip"},
      // What goes wrong in kernels.
      {"one-row shift", {9, 1, 2, 3}, {1, 9, 3, 2}, 8, 1, false, "structured/wide-flip"},
      {"one-token shift", {9, 1, 2, 3}, {3, 9, 1, 2}, 5, 1, false, "structured/drift"},
      {"sign flip", {9, 1, -2, 3}, {-9, -1, 2, -3}, 8, 1, false, "structured/drift"},
      {"sign flip of small logits", {2, 1, -2, 0}, {-2, -1, 2, 0}, 8, 0.5, false, "structured/wide-flip"},
  };
  for (const Case& c : cases) EXPECT_EQ(judged(c), c.expected) << c.what;
}

// The same, with the difference where the vectorised pass has its blocks, parts and tail.
TEST(Gate, EveryPlaceOfARowIsSeen) {
  for (const size_t n : {1u, 7u, 8u, 9u, 272u, 2047u, 2048u, 2049u, 4103u}) {
    Row reference(n);
    for (size_t i = 0; i < n; ++i) reference[i] = static_cast<float>(i % 13) * 0.25f;
    for (size_t at = 0; at < n; at += n < 300 ? 1 : 61) {
      const auto with = [&](float x) {
        Row row = reference;
        row[at] = x;
        return row;
      };
      EXPECT_EQ(classify(measure(reference, with(kNaN)), 8, 1, true).reason, Reason::non_finite)
          << n << " " << at;
      EXPECT_EQ(classify(measure(with(kNaN), reference), 8, 1, true).reason, Reason::non_finite)
          << n << " " << at;
      EXPECT_EQ(classify(measure(with(-kInf), with(kInf)), 8, 1, true).reason, Reason::non_finite)
          << n << " " << at;
      EXPECT_EQ(classify(measure(with(-kInf), with(-kInf)), 8, 1, true).row_class, RowClass::match)
          << n << " " << at;
      EXPECT_EQ(classify(measure(with(-kInf), with(-kInf)), 8, 1, false).reason, Reason::non_finite);
      const RowStats drift = measure(reference, with(reference[at] - 8.25f));
      EXPECT_EQ(classify(drift, 8, 1, false).reason, Reason::drift) << n << " " << at;
      EXPECT_EQ(drift.max_token, at);
      EXPECT_EQ(drift.max_abs, 8.25);
    }
  }
}

TEST(Gate, RowsOfMixedWidthAreComparedInDouble) {
  const Row narrow = {5, 2, 1};
  const std::vector<double> wide = {5, 2 + 0x1p-40, 1};
  RowView a, b;
  a.f32 = narrow.data();
  b.f64 = wide.data();
  a.n_vocab = b.n_vocab = 3;
  const RowStats stats = measure_row(a, b, {});
  EXPECT_EQ(stats.max_abs, 0x1p-40);
  EXPECT_FALSE(stats.bit_identical);
  EXPECT_EQ(classify(stats, 0x1p-40, 1, false).row_class, RowClass::match);
  EXPECT_EQ(classify(stats, std::nextafter(0x1p-40, 0), 1, false).reason, Reason::drift);
}

TEST(Gate, LogProbabilitiesAreNormalisedFirst) {
  const Row logits = {5, 2, 1};
  const Row shifted = {-4, -7, -8};
  EXPECT_EQ(classify(measure(logits, shifted), 8, 1, false).reason, Reason::drift);
  const RowStats stats = measure(logits, shifted, true);
  EXPECT_LE(stats.max_abs, 1e-14);
  EXPECT_EQ(classify(stats, 8, 1, false).row_class, RowClass::match);
}

using Variables = std::map<std::string, std::string>;
GateBounds bounds_of(const BoundTexts& texts, const Variables& variables) {
  return resolve_bounds(texts, [&variables](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at != variables.end() ? at->second.c_str() : nullptr;
  });
}

TEST(Bounds, FlagBeatsEnvironmentBeatsDefault) {
  EXPECT_EQ(bounds_of({}, {}).max_diff.value, 8.0);
  EXPECT_EQ(bounds_of({}, {}).margin.value, 1.0);
  Variables all = {{"MEMRA_PRIME_GATE_MAXDIFF", "3"}, {"MEMRA_PRIME_GATE_MARGIN", "0.3"}};
  EXPECT_EQ(bounds_of({}, all).max_diff.value, 3);
  EXPECT_EQ(bounds_of({}, all).margin.value, 0.3);
  EXPECT_EQ(bounds_of({}, all).margin.source, "MEMRA_PRIME_GATE_MARGIN");
  all["LOGITGATE_MAX_DIFF"] = "2";
  all["LOGITGATE_MARGIN"] = "0.2";
  EXPECT_EQ(bounds_of({}, all).max_diff.value, 2);
  EXPECT_EQ(bounds_of({}, all).margin.value, 0.2);
  EXPECT_EQ(bounds_of({}, all).max_diff.source, "LOGITGATE_MAX_DIFF");
  EXPECT_EQ(bounds_of({"1.5", "0.1", {}, {}}, all).max_diff.value, 1.5);
  EXPECT_EQ(bounds_of({"1.5", "0.1", {}, {}}, all).margin.value, 0.1);
  EXPECT_EQ(bounds_of({"1.5", {}, {}, {}}, all).margin.value, 0.2);
}

TEST(Bounds, GoodNumbers) {
  for (const auto& [text, value] : std::map<std::string, double>{
           {"0", 0}, {"8", 8}, {"1e-3", 1e-3}, {".5", .5}, {"1E2", 100}, {"-0", 0}, {"1.", 1}}) {
    EXPECT_EQ(bounds_of({text, text, text, {}}, {}).max_diff.value, value) << text;
    EXPECT_EQ(bounds_of({text, text, {}, {}}, {}).margin.value, value) << text;
    EXPECT_FALSE(std::signbit(bounds_of({text, text, {}, {}}, {}).margin.value));
  }
}

TEST(Bounds, AnythingElseIsTroubleThatNamesItsSource) {
  const char* malformed[] = {"",         " ",     "abc",   "1e",  "1e+", "nan",   "NaN", "inf",  "-inf",
                             "Infinity", "-1",    "-1e-9", "1,5", "1 ",  " 1",    "1x",  "0x10", "1e999",
                             "8.0f",     "1.2.3", "--1",   "+",   "e5",  "1_000", "1\n", "½"};
  const char* flags[] = {"--max-diff", "--margin", "--max-kl", "--min-top1"};
  const char* variables[] = {"LOGITGATE_MAX_DIFF", "LOGITGATE_MARGIN", "MEMRA_PRIME_GATE_MAXDIFF",
                             "MEMRA_PRIME_GATE_MARGIN"};
  const auto expect_trouble = [](const BoundTexts& texts, const Variables& environment,
                                 const std::string& source) {
    try {
      bounds_of(texts, environment);
      ADD_FAILURE() << source << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_EQ(error.message().rfind(source + ": ", 0), 0u) << error.message();
    }
  };
  for (const char* text : malformed) {
    for (size_t i = 0; i < 4; ++i) {
      BoundTexts texts;
      (i == 0 ? texts.max_diff : i == 1 ? texts.margin : i == 2 ? texts.max_kl : texts.min_top1) = text;
      expect_trouble(texts, {}, flags[i]);
      expect_trouble({}, {{variables[i], text}}, variables[i]);
    }
  }
  expect_trouble({{}, "auto", {}, {}}, {}, "--margin");
  expect_trouble({}, {{"MEMRA_PRIME_GATE_MAXDIFF", "auto"}}, "MEMRA_PRIME_GATE_MAXDIFF");
  expect_trouble({{}, {}, {}, "1.01"}, {}, "--min-top1");
  EXPECT_TRUE(bounds_of({"auto", {}, {}, {}}, {}).automatic);
  EXPECT_TRUE(bounds_of({}, {{"LOGITGATE_MAX_DIFF", "auto"}}).automatic);
  EXPECT_FALSE(bounds_of({"4", {}, {}, {}}, {{"LOGITGATE_MAX_DIFF", "auto"}}).automatic);
}

// ---- many rows ----

GateResult gate(const MemoryDump& a, const MemoryDump& b, GateOptions options = {}) {
  DumpPair pair(sources(a, b), RowSelection::all());
  return run_gate(pair, options);
}

const Row kSure = {9, 1, 0, 0};
const Row kTie = {5, 4.5f, 0, 0};
const Row kTieFlipped = {4.5f, 5, 0, 0};
const Row kWrong = {1, 9, 0, 0};

TEST(Gate, TheVerdictIsTheWorst) {
  MemoryDump a("a"), b("b");
  a.add("0", kSure).add("1", kTie).add("2", kSure);
  b.add("0", kSure).add("1", kTie).add("2", kSure);
  EXPECT_EQ(gate(a, b).verdict, RowClass::match);
  EXPECT_TRUE(gate(a, b).pass);
  MemoryDump flip("b");
  flip.add("0", kSure).add("1", kTieFlipped).add("2", kSure);
  EXPECT_EQ(gate(a, flip).verdict, RowClass::near_tie_flip);
  EXPECT_TRUE(gate(a, flip).pass);
  GateOptions strict;
  strict.strict = true;
  EXPECT_FALSE(gate(a, flip, strict).pass);
  EXPECT_TRUE(gate(a, b, strict).pass);
  MemoryDump wrong("b");
  wrong.add("0", kWrong).add("1", kTieFlipped).add("2", kSure);
  const GateResult result = gate(a, wrong);
  EXPECT_EQ(result.verdict, RowClass::structured);
  EXPECT_FALSE(result.pass);
  EXPECT_EQ(result.counts[0], 1u);
  EXPECT_EQ(result.counts[1], 1u);
  EXPECT_EQ(result.counts[2], 1u);
  EXPECT_EQ(result.rows_compared, 3u);
  EXPECT_EQ(result.rows_expected, 3u);
  EXPECT_EQ(result.max_diff, 8);
  EXPECT_EQ(result.max_diff_at.record, "0");
  EXPECT_EQ(result.failing.sorted()[0].key.record, "0");
  EXPECT_EQ(result.failing.sorted()[1].verdict.row_class, RowClass::near_tie_flip);
  GateOptions fast;
  fast.fail_fast = true;
  fast.threads = 1;
  EXPECT_TRUE(gate(a, wrong, fast).stopped_early);
  EXPECT_EQ(gate(a, wrong, fast).rows_compared, 1u);
}

TEST(Gate, FurtherBounds) {
  MemoryDump a("a"), b("b");
  a.add("0", kSure).add("1", kTie);
  b.add("0", kSure).add("1", kTieFlipped);
  GateOptions options;
  options.bounds.min_top1 = 0.5;
  EXPECT_TRUE(gate(a, b, options).pass);
  options.bounds.min_top1 = 0.51;
  EXPECT_FALSE(gate(a, b, options).pass);
  EXPECT_EQ(gate(a, b, options).violations, std::vector<std::string>{"min_top1"});
  EXPECT_EQ(gate(a, b, options).verdict, RowClass::near_tie_flip);
  options.bounds.min_top1.reset();
  options.bounds.max_kl = 1;
  EXPECT_TRUE(gate(a, b, options).pass);
  options.bounds.max_kl = 0.01;
  EXPECT_EQ(gate(a, b, options).violations, std::vector<std::string>{"max_kl"});
  b.records.pop_back();
  b.blocks.pop_back();
  b.add("1", {kNaN, 1, 1, 1});
  options.bounds.max_kl = 1e9;
  EXPECT_EQ(gate(a, b, options).violations, std::vector<std::string>{"max_kl"});
}

TEST(Gate, ListsAreBoundedAndWorstFirst) {
  MemoryDump a("a", 2), b("b", 2);
  for (int i = 0; i < 10'300; ++i) {
    const float drift = static_cast<float>((i * 7919) % 10'300) / 1024;
    const bool match = i >= 10'050;
    a.add(std::to_string(i), {20, 0});
    b.add(std::to_string(i), {20, match ? drift / 8 : -9 - drift});
  }
  const GateResult result = gate(a, b);
  EXPECT_EQ(result.counts[2], 10'050u);
  const std::vector<GateRow> failing = result.failing.sorted(), matches = result.matches.sorted();
  ASSERT_EQ(failing.size(), 10'000u);
  ASSERT_EQ(matches.size(), 100u);
  for (size_t i = 1; i < failing.size(); ++i) EXPECT_GE(failing[i - 1].max_diff, failing[i].max_diff);
  for (size_t i = 1; i < matches.size(); ++i) EXPECT_GE(matches[i - 1].max_diff, matches[i].max_diff);
  EXPECT_EQ(failing[0].max_diff, result.max_diff);
}

TEST(Gate, ResultsDoNotDependOnThreads) {
  MemoryDump a("a", 997), b("b", 997);
  uint32_t state = 1;
  const auto random = [&state] {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 8) / (1 << 24);
  };
  for (int i = 0; i < 400; ++i) {
    Row r(997), c(997);
    for (size_t k = 0; k < r.size(); ++k) {
      r[k] = 20 * random() - 10;
      c[k] = r[k] + 0.001f * (random() - 0.5f);
    }
    a.add(std::to_string(i), r);
    b.add(std::to_string(i), c);
  }
  GateOptions options;
  options.bounds.max_kl = 1;
  options.threads = 1;
  const std::string one = gate_json(gate(a, b, options));
  for (const int threads : {2, 3, 7}) {
    options.threads = threads;
    EXPECT_EQ(gate_json(gate(a, b, options)), one);
  }
}

TEST(Gate, TroubleOfARowIsThrownInOrder) {
  MemoryDump a("a"), b("b");
  for (int i = 0; i < 50; ++i) {
    a.add(std::to_string(i), kSure);
    b.add(std::to_string(i), kSure);
  }
  a.add("extra", kSure);
  for (const int threads : {1, 4}) {
    GateOptions options;
    options.threads = threads;
    EXPECT_THROW(gate(a, b, options), Error);
  }
}

// ---- expected drift ----

DumpHeader header_of(const std::string& precision, StoreType store = StoreType::f32) {
  DumpHeader header;
  header.precision = precision;
  header.store.type = store;
  return header;
}

TEST(ExpectedDrift, OrdersPrecisionsAndSeparatesRoundingFromDefects) {
  RowStats row;
  row.half_range = 15;
  row.max_magnitude = 19;
  const auto ceiling = [&row](const char* r, const char* c) {
    return ExpectedDrift(header_of(r), header_of(c)).ceiling(row);
  };
  EXPECT_GT(ceiling("f32", "f32"), 3e-4);  // golden models: f32 is within 2e-4
  EXPECT_LT(ceiling("f32", "f32"), 1e-2);  // the smallest defect
  EXPECT_GT(ceiling("f32", "bf16"), 5e-2);
  EXPECT_LT(ceiling("f32", "bf16"), kDefaultMaxDiff);
  EXPECT_LT(ceiling("f32", "tf32"), ceiling("f32", "bf16"));
  EXPECT_LT(ceiling("f64", "f32"), ceiling("f32", "f32"));
  EXPECT_LT(ceiling("f64", "f64"), 1e-5);
  EXPECT_EQ(ceiling("f32", "f32x3"), ceiling("f32", "f32"));
  // f64 runs stored as f32 differ where the last stored bit rounds the other way.
  EXPECT_GE(ceiling("f64", "f64"), 19 * 0x1p-23);
  const ExpectedDrift wide(header_of("f64", StoreType::f64), header_of("f64", StoreType::f64));
  EXPECT_LT(wide.ceiling(row), 1e-11);
}

TEST(ExpectedDrift, SaysWhatItAssumes) {
  EXPECT_EQ(ExpectedDrift(header_of("f32"), header_of("f32")).assumption(), "");
  const ExpectedDrift import(header_of(""), header_of("f32"));
  EXPECT_NE(import.assumption().find("reference does not say its precision, taken to be f32"),
            std::string::npos);
  DumpHeader a = header_of("f32"), b = header_of("f32");
  a.weights_digest = "1";
  b.weights_digest = "2";
  EXPECT_NE(ExpectedDrift(a, b).assumption().find("weights differ"), std::string::npos);
}

TEST(Gate, AutoJudgesByTheExpectation) {
  MemoryDump a("a"), small("b"), large("b");
  a.add("0", {15, -15, 3, 0});
  small.add("0", {15.0002f, -15, 3, 0});
  large.add("0", {15.01f, -15, 3, 0});
  GateOptions options;
  options.bounds.automatic = true;
  EXPECT_TRUE(gate(a, small, options).pass);
  EXPECT_FALSE(gate(a, large, options).pass);
  EXPECT_EQ(gate(a, large, options).failing.sorted()[0].verdict.reason, Reason::drift);
  EXPECT_TRUE(gate(a, large).pass);
  const GateResult result = gate(a, large);
  EXPECT_NEAR(result.drift_over_expected, result.max_diff / result.expected_drift, 1e-9);
  EXPECT_GT(result.drift_over_expected, 100);
}

// ---- top-k ----

MemoryDump topk_dump(const char* name, uint32_t n_vocab, const std::vector<uint32_t>& ids, const Row& values,
                     double lse) {
  MemoryDump dump(name, n_vocab);
  dump.header.store = {StoreType::topk, static_cast<uint32_t>(ids.size())};
  dump.add("x", Row{});
  RowBlock& block = dump.blocks[0][0];
  block.ids = ids;
  block.values = values;
  block.log_sum_exp = {lse};
  return dump;
}

TEST(GateTopk, KeptIdsDecide) {
  const MemoryDump full = MemoryDump("a", 5).add("x", {1, 9, 8.5f, 0, 2});
  const MemoryDump same = topk_dump("b", 5, {1, 2}, {9, 8.5f}, 9.5);
  GateResult result = gate(full, same);
  EXPECT_EQ(result.verdict, RowClass::match);
  EXPECT_TRUE(result.topk);
  EXPECT_GT(result.min_coverage, 0.99);
  EXPECT_LT(result.min_coverage, 1);
  EXPECT_EQ(gate(same, same).verdict, RowClass::match);
  const MemoryDump flipped = topk_dump("b", 5, {2, 1}, {9, 8.5f}, 9.5);
  EXPECT_EQ(gate(full, flipped).verdict, RowClass::near_tie_flip);
  EXPECT_EQ(gate(same, flipped).verdict, RowClass::near_tie_flip);
  const MemoryDump drifted = topk_dump("b", 5, {1, 2}, {18, 17.5f}, 18.5);
  EXPECT_EQ(gate(full, drifted).verdict, RowClass::structured);
}

TEST(GateTopk, AnAbsentIdIsBoundedByTheKth) {
  // Token 4 stands at 20 in the reference and is at most 9 in the candidate.
  const MemoryDump full = MemoryDump("a", 5).add("x", {1, 9, 10, 0, 20});
  const GateResult result = gate(full, topk_dump("b", 5, {2, 1}, {10, 9}, 10.5));
  EXPECT_EQ(result.verdict, RowClass::structured);
  EXPECT_EQ(result.failing.sorted()[0].verdict.reason, Reason::drift);
  EXPECT_EQ(result.max_diff, 11);
}

TEST(GateTopk, WhatIsNotHeldIsTroubleNotAMatch) {
  // The argmaxes are not held by the other side, and no bound proves drift.
  const MemoryDump a = topk_dump("a", 9, {1, 2}, {9, 8.5f}, 9.5),
                   b = topk_dump("b", 9, {3, 4}, {9, 8.5f}, 9.5);
  EXPECT_THROW(gate(a, b), Error);
  // topk:1 knows no margin: a match is a match, a flip is open.
  const MemoryDump one = topk_dump("a", 5, {1}, {9}, 9.5);
  const MemoryDump full = MemoryDump("b", 5).add("x", {1, 9, 8.5f, 0, 2});
  const MemoryDump flip = MemoryDump("b", 5).add("x", {1, 8.5f, 9, 0, 2});
  EXPECT_EQ(gate(one, full).verdict, RowClass::match);
  EXPECT_THROW(gate(one, flip), Error);
  const MemoryDump nan = topk_dump("b", 5, {1, 2}, {kNaN, 8.5f}, 9.5);
  EXPECT_EQ(gate(full, nan).failing.sorted()[0].verdict.reason, Reason::non_finite);
  const MemoryDump no_lse = topk_dump("b", 5, {1, 2}, {9, 8.5f}, std::nan(""));
  EXPECT_EQ(gate(full, no_lse).failing.sorted()[0].verdict.reason, Reason::non_finite);
  EXPECT_THROW(gate(full, topk_dump("b", 5, {1, 7}, {9, 8.5f}, 9.5)), Error);
}

}  // namespace
}  // namespace logitgate
