// The comparison of whole dumps, and what the reports make of it.
// Contract: JSON has the keys of the contract; CSV and markup survive hostile ids.
#include "lib/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "lib/report.h"
#include "tests/support/memory_dump.h"

namespace logitgate {
namespace {

using Json = nlohmann::json;
using Row = std::vector<float>;

CompareResult compare(const MemoryDump& a, const MemoryDump& b, CompareOptions options = {}) {
  DumpPair pair(sources(a, b), RowSelection::all());
  return run_compare(pair, options);
}

TEST(Compare, IdenticalDumps) {
  const MemoryDump a =
      MemoryDump("a").add("x", 2, {0, 1}, {{1, 2, 3, 4}, {4, 3, 2, 1}}).add("y", {0, 0, 0, 0});
  const CompareResult result = compare(a, a);
  EXPECT_TRUE(result.identical());
  EXPECT_EQ(result.totals.rows, 3u);
  EXPECT_EQ(result.totals.max_abs, 0);
  EXPECT_TRUE(result.worst.empty());
  EXPECT_NE(compare_table(result, {}).find("every row is bit-identical"), std::string::npos);
}

TEST(Compare, IdenticalNaNIsIdenticalAndCounted) {
  const MemoryDump a = MemoryDump("a").add("x", {std::nanf(""), 0, 0, 0});
  const CompareResult result = compare(a, a);
  EXPECT_TRUE(result.identical());
  EXPECT_EQ(result.totals.non_finite_rows, 1u);
  MemoryDump b = a;
  b.blocks[0][0].f32[0] = 1;
  EXPECT_FALSE(compare(a, b).identical());
}

TEST(Compare, NegativeZeroIsADifference) {
  const MemoryDump a = MemoryDump("a").add("x", {1, 0.0f, 0, 0}),
                   b = MemoryDump("b").add("x", {1, -0.0f, 0, 0});
  EXPECT_FALSE(compare(a, b).identical());
  EXPECT_EQ(compare(a, b).totals.max_abs, 0);
}

TEST(Compare, JsonHasTheKeysOfTheContract) {
  const MemoryDump a = MemoryDump("a").add("x", 2, {0, 1}, {{1, 2, 3, 4}, {4, 3, 2, 1}});
  const MemoryDump b = MemoryDump("b").add("x", 2, {0, 1}, {{1, 2, 3, 4.25f}, {3, 4, 2, 1}});
  const Json json = Json::parse(compare_json(compare(a, b), {"A", "B", "C", "D"}));
  for (const char* key : {"schema_version", "reference", "candidate", "records", "rows", "rows_expected",
                          "n_vocab", "max_abs_diff", "max_abs_diff_at", "mean_abs_diff", "rms_diff", "nmse",
                          "kld", "top1_agreement", "flips", "bit_identical_rows", "non_finite_rows"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const char* key : {"mean", "p50", "p90", "p99", "p999", "max"})
    EXPECT_TRUE(json["kld"].contains(key)) << key;
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["records"], 1);
  EXPECT_EQ(json["rows"], 2);
  EXPECT_EQ(json["n_vocab"], 4);
  EXPECT_EQ(json["max_abs_diff"], 1.0);
  EXPECT_EQ(json["max_abs_diff_at"]["record"], "x");
  EXPECT_EQ(json["max_abs_diff_at"]["position"], 1);
  EXPECT_EQ(json["max_abs_diff_at"]["token"], 0);
  EXPECT_EQ(json["max_abs_diff_at"]["token_text"], "A");
  EXPECT_EQ(json["mean_abs_diff"], 2.25 / 8);
  EXPECT_EQ(json["rms_diff"], std::sqrt((0.0625 + 2) / 8));
  EXPECT_EQ(json["nmse"], (0.0625 + 2) / 60);
  EXPECT_EQ(json["flips"], 1);
  EXPECT_EQ(json["top1_agreement"], 0.5);
  EXPECT_TRUE(json["flips"].is_number_unsigned());
}

TEST(Compare, JsonSpellsWhatIsNotFinite) {
  const MemoryDump a = MemoryDump("a").add("x", {std::nanf(""), 0, 0, 0});
  const Json json = Json::parse(compare_json(compare(a, a), {}));
  EXPECT_EQ(json["max_abs_diff"], "NaN");
  EXPECT_EQ(json["kld"]["p50"], "NaN");
  EXPECT_EQ(json["max_abs_diff_at"], nullptr);
  EXPECT_EQ(json["first_non_finite"]["record"], "x");
}

TEST(Compare, ResultsDoNotDependOnThreads) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 5);
  MemoryDump a("a", 501), b("b", 501);
  for (int i = 0; i < 700; ++i) {
    Row r(501), c(501);
    for (size_t k = 0; k < r.size(); ++k) {
      r[k] = normal(random);
      c[k] = r[k] + 0.01f * normal(random);
    }
    a.add(std::to_string(i), r);
    b.add(std::to_string(i), c);
  }
  CompareOptions options;
  options.threads = 1;
  const std::string one = compare_json(compare(a, b, options), {});
  for (const int threads : {2, 3, 8}) {
    options.threads = threads;
    EXPECT_EQ(compare_json(compare(a, b, options), {}), one);
  }
}

TEST(Compare, WorstRowsAreBoundedAndSorted) {
  MemoryDump a("a", 2), b("b", 2);
  for (int i = 0; i < 100; ++i) {
    a.add(std::to_string(i), {1, 0});
    b.add(std::to_string(i), {1, i == 50 ? std::nanf("") : static_cast<float>((i * 37) % 100)});
  }
  const CompareResult result = compare(a, b);
  ASSERT_EQ(result.worst.size(), CompareResult::kMaxWorst);
  EXPECT_EQ(result.worst[0].key.record, "50");
  EXPECT_EQ(result.worst[1].stats.max_abs, 99);
  for (size_t i = 2; i < result.worst.size(); ++i) {
    EXPECT_GE(result.worst[i - 1].stats.max_abs, result.worst[i].stats.max_abs);
  }
}

TEST(PositionProfile, WidensAndKeepsEveryRow) {
  PositionProfile profile;
  RowStats row;
  row.finite = true;
  for (uint32_t position = 0; position < 3000; ++position) {
    row.max_abs = position == 1234 ? 9 : 1;
    profile.add(position, row);
  }
  EXPECT_EQ(profile.width(), 16u);
  EXPECT_EQ(profile.n_bins(), 188u);
  uint64_t rows = 0;
  for (size_t i = 0; i < profile.n_bins(); ++i) rows += profile.bin(i).rows;
  EXPECT_EQ(rows, 3000u);
  EXPECT_EQ(profile.bin(1234 / 16).max_abs, 9);
  profile.add(4'000'000'000u, row);
  EXPECT_LE(profile.n_bins(), PositionProfile::kBins);
}

TEST(Reports, SurviveHostileText) {
  const std::string id = "a,\"b\"\n<script>&\x1b[31m\xff";
  const MemoryDump a = MemoryDump("a<b>").add(id, {1, 2, 3, 4}), b = MemoryDump("b").add(id, {1, 2, 3, 4.5f});
  const CompareResult result = compare(a, b);
  const std::string html = compare_html(result, {});
  EXPECT_EQ(html.find("<script>"), std::string::npos);
  EXPECT_EQ(html.find("a<b>"), std::string::npos);
  EXPECT_NE(html.find("<svg"), std::string::npos);
  EXPECT_NE(html.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_EQ(compare_table(result, {}).find('\x1b'), std::string::npos);
  EXPECT_TRUE(Json::accept(compare_json(result, {})));
  const std::string csv = csv_row({id, 3}, result.worst[0].stats, {});
  EXPECT_EQ(csv.rfind("\"a,\"\"b\"\"\n", 0), 0u) << csv;
}

TEST(Reports, CsvHasAColumnForEveryMetric) {
  const MemoryDump a = MemoryDump("a").add("x", {1, 2, 3, 4}), b = MemoryDump("b").add("x", {1, 2, 3, 4.5f});
  const CompareResult result = compare(a, b);
  const TokenNames names = {"A", "B", "C", "D,E"};
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  const std::string header = csv_header({}), row = csv_row({"x", 7}, result.worst[0].stats, {});
  EXPECT_EQ(commas(header), commas(row));
  EXPECT_EQ(header.rfind("record,position,bit_identical,finite,max_abs_diff,", 0), 0u);
  EXPECT_EQ(row.rfind("x,7,0,1,0.5,3,0.125,", 0), 0u) << row;
  const std::string named = csv_row({"x", 7}, result.worst[0].stats, names);
  EXPECT_NE(named.find("\"D,E\",\"D,E\",\"D,E\"\n"), std::string::npos) << named;
}

GateResult gate(const MemoryDump& a, const MemoryDump& b, GateOptions options = {}) {
  DumpPair pair(sources(a, b), RowSelection::all());
  return run_gate(pair, options);
}

TEST(Reports, GateJsonHasTheKeysOfTheContract) {
  MemoryDump a("a"), b("b");
  a.add("bad", {9, 1, 0, 0}).add("tie", {5, 4.5f, 0, 0}).add("ok", {9, 1, 0, 0}).add("nan", {9, 1, 0, 0});
  b.add("bad", {1, 9, 0, 0})
      .add("tie", {4.5f, 5, 0, 0})
      .add("ok", {9, 1, 0, 0})
      .add("nan", {std::nanf(""), 1, 0, 0});
  std::string streamed = gate_json_begin();
  GateOptions options;
  options.on_row = [&streamed](const GateRow& row) {
    streamed += (row.order > 0 ? ",\n" : "") + gate_json_row(row);
  };
  const GateResult result = gate(a, b, options);
  streamed += gate_json_end(result);
  const Json json = Json::parse(gate_json(result)), all = Json::parse(streamed);
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["pass"], false);
  EXPECT_EQ(json["verdict"], "structured");
  EXPECT_EQ(json["counts"], Json({{"match", 1}, {"near_tie_flip", 1}, {"structured", 2}}));
  EXPECT_EQ(json["bounds"]["max_diff"], 8.0);
  EXPECT_EQ(json["bounds"]["margin"], 1.0);
  EXPECT_EQ(json["rows_compared"], 4);
  EXPECT_EQ(json["rows_expected"], 4);
  ASSERT_EQ(json["rows"].size(), 4u);
  EXPECT_EQ(json["rows"][0]["record"], "nan");
  EXPECT_EQ(json["rows"][0]["reason"], "non-finite");
  EXPECT_EQ(json["rows"][0]["max_diff"], "NaN");
  EXPECT_EQ(json["rows"][1]["record"], "bad");
  EXPECT_EQ(json["rows"][1]["class"], "structured");
  EXPECT_EQ(json["rows"][1]["reason"], "wide-flip");
  EXPECT_EQ(json["rows"][1]["position"], 0);
  EXPECT_EQ(json["rows"][1]["max_diff"], 8.0);
  EXPECT_EQ(json["rows"][1]["reference"], Json({{"argmax", 0}, {"margin", 8.0}}));
  EXPECT_EQ(json["rows"][1]["candidate"], Json({{"argmax", 1}, {"margin", 8.0}}));
  EXPECT_EQ(json["rows"][2]["class"], "near-tie-flip");
  EXPECT_EQ(json["rows"][3]["class"], "match");
  ASSERT_EQ(all["rows"].size(), 4u);
  EXPECT_EQ(all["rows"][0]["record"], "bad");
  EXPECT_EQ(all["rows"][3]["record"], "nan");
  EXPECT_EQ(all["counts"], json["counts"]);
  const std::string table = gate_table(result);
  EXPECT_NE(table.find("FAIL: structured"), std::string::npos);
  EXPECT_NE(table.find("expected drift"), std::string::npos);
}

TEST(Reports, JunitTellsFailuresFlipsAndTrouble) {
  MemoryDump a("a"), b("b");
  a.add("bad<", {9, 1, 0, 0}).add("tie", {5, 4.5f, 0, 0});
  b.add("bad<", {1, 9, 0, 0}).add("tie", {4.5f, 5, 0, 0});
  const std::string page = gate_junit(gate(a, b));
  EXPECT_NE(page.find("tests=\"3\" failures=\"2\" errors=\"0\""), std::string::npos) << page;
  EXPECT_NE(page.find("name=\"record bad&lt; position 0\""), std::string::npos);
  EXPECT_NE(page.find("<property name=\"near-tie-flip\""), std::string::npos);
  EXPECT_NE(page.find("<failure type=\"structured\""), std::string::npos);
  EXPECT_NE(trouble_junit("a & b").find("<error type=\"trouble\" message=\"a &amp; b\"/>"),
            std::string::npos);
}

}  // namespace
}  // namespace logitgate
