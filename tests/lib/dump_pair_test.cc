// Pairing of records and rows: by id and position, in any order where a side is seekable, and everything that is trouble.
// Contract: each case of trouble names the file and the record concerned.
#include "lib/dump_pair.h"

#include <gtest/gtest.h>

#include "tests/support/memory_dump.h"

namespace logitgate {
namespace {

using Rows = std::vector<std::vector<float>>;

std::vector<float> row(float x) { return {x, 0, 0, 0}; }

struct Seen {
  std::string record;
  uint32_t position;
  float reference, candidate;
  friend bool operator==(const Seen&, const Seen&) = default;
};
void PrintTo(const Seen& s, std::ostream* out) {
  *out << s.record << ":" << s.position << " " << s.reference << " " << s.candidate;
}

std::vector<Seen> walk(const MemoryDump& a, const MemoryDump& b,
                       const RowSelection& rows = RowSelection::all()) {
  DumpPair pair(sources(a, b), rows);
  RowPairs batch;
  std::vector<Seen> seen;
  while (pair.next(batch)) {
    for (const RowPair& p : batch.pairs) {
      seen.push_back({batch.records[p.record], p.position, p.reference.f32[0], p.candidate.f32[0]});
    }
  }
  EXPECT_EQ(pair.n_rows(), seen.size());
  return seen;
}

std::string trouble(const MemoryDump& a, const MemoryDump& b,
                    const RowSelection& rows = RowSelection::all()) {
  try {
    walk(a, b, rows);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::incomparable);
    return error.message();
  }
  return "no trouble";
}

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

MemoryDump named(const char* name) { return MemoryDump(name); }

TEST(DumpPair, SameOrder) {
  const MemoryDump a = named("a").add("x", row(1)).add("y", 3, {0, 1, 2}, {row(2), row(3), row(4)});
  const MemoryDump b = named("b").add("x", row(5)).add("y", 3, {0, 1, 2}, {row(6), row(7), row(8)}, 3);
  EXPECT_EQ(walk(a, b), (std::vector<Seen>{{"x", 0, 1, 5}, {"y", 0, 2, 6}, {"y", 1, 3, 7}, {"y", 2, 4, 8}}));
}

TEST(DumpPair, OtherOrderWhereOneSideIsSeekable) {
  MemoryDump a = named("a").add("x", row(1)).add("y", row(2)).add("z", row(3)).add("w", row(4));
  MemoryDump b = named("b").add("x", row(11)).add("w", row(14)).add("y", row(12)).add("z", row(13));
  EXPECT_EQ(walk(a, b),
            (std::vector<Seen>{{"x", 0, 1, 11}, {"y", 0, 2, 12}, {"z", 0, 3, 13}, {"w", 0, 4, 14}}));
  b.seekable = false;
  EXPECT_EQ(walk(a, b),
            (std::vector<Seen>{{"x", 0, 1, 11}, {"w", 0, 4, 14}, {"y", 0, 2, 12}, {"z", 0, 3, 13}}));
  a.seekable = false;
  const std::string message = trouble(a, b);
  expect_in(message, "b: record 1 is 'w' where a has 'y'");
  expect_in(message, "seekable");
}

TEST(DumpPair, LastTakesTheLastTokenAlone) {
  const MemoryDump a = named("a").add("x", 3, {0, 1, 2}, {row(1), row(2), row(3)}).add("y", 5, {4}, {row(9)});
  const MemoryDump b = named("b").add("x", 3, {2}, {row(4)}).add("y", 5, {3, 4}, {row(7), row(8)});
  EXPECT_EQ(walk(a, b, RowSelection::last()), (std::vector<Seen>{{"x", 2, 3, 4}, {"y", 4, 9, 8}}));
}

TEST(DumpPair, Slices) {
  const MemoryDump a =
      named("a").add("x", 4, {0, 1, 2, 3}, {row(0), row(1), row(2), row(3)}).add("y", 1, {0}, {row(9)});
  const MemoryDump b = named("b").add("x", 4, {1, 2}, {row(5), row(6)}).add("y", 1, {}, {});
  EXPECT_EQ(walk(a, b, {1, 3}), (std::vector<Seen>{{"x", 1, 1, 5}, {"x", 2, 2, 6}}));
  expect_in(trouble(a, b, {0, 3}), "b: record 'x': position 0 is missing, a has it");
  expect_in(trouble(b, a, {0, 3}), "b: record 'x': position 0 is missing, a has it");
  expect_in(trouble(b, b, {0, 3}), "b: record 'x': position 0 is missing, in b too");
  expect_in(trouble(a, b, {1, 4}), "position 3 is missing");
  expect_in(trouble(a, b), "b: record 'x': position 0 is missing");
}

TEST(DumpPair, MissingRowsInEitherDirection) {
  const MemoryDump a = named("a").add("x", 3, {0, 1, 2}, {row(1), row(2), row(3)});
  const MemoryDump b = named("b").add("x", 3, {0, 2}, {row(1), row(3)});
  const MemoryDump c = named("c").add("x", 3, {0, 1}, {row(1), row(2)});
  expect_in(trouble(a, b), "b: record 'x': position 1 is missing");
  expect_in(trouble(b, a), "b: record 'x': position 1 is missing");
  expect_in(trouble(a, c, RowSelection::last()), "c: record 'x': position 2 is missing");
  expect_in(trouble(c, c, RowSelection::last()), "c: record 'x': position 2 is missing, in c too");
  EXPECT_EQ(walk(a, b, RowSelection::last()).size(), 1u);
}

TEST(DumpPair, MissingRecordsInEitherDirection) {
  const MemoryDump a = named("a").add("x", row(1)).add("y", row(2)).add("z", row(3));
  const MemoryDump cut = named("b").add("x", row(1)).add("y", row(2));
  const MemoryDump hole = named("b").add("x", row(1)).add("z", row(3));
  const MemoryDump shuffled = named("b").add("z", row(1)).add("x", row(3));
  for (const MemoryDump& b : {cut, hole, shuffled}) {
    const std::string id = b.records[1].id == "y" ? "z" : "y";
    expect_in(trouble(a, b), fmt::format("b: record '{}' of a is missing", id));
    expect_in(trouble(b, a), fmt::format("b: record '{}' of a is missing", id));
  }
}

TEST(DumpPair, IdsThatComeTwice) {
  const MemoryDump a = named("a").add("x", row(1)).add("y", row(2));
  const MemoryDump twice = named("b").add("x", row(1)).add("y", row(2)).add("x", row(3));
  const MemoryDump twice_shuffled = named("b").add("y", row(2)).add("x", row(1)).add("x", row(3));
  expect_in(trouble(a, twice), "b: record 'x' comes twice");
  expect_in(trouble(twice, a), "b: record 'x' comes twice");
  expect_in(trouble(twice, twice), "b: record 'x' comes twice");
  expect_in(trouble(a, twice_shuffled), "b: record 'x' comes twice");
  expect_in(trouble(twice_shuffled, a), "b: record 'x' comes twice");
}

TEST(DumpPair, OtherTokensForAnId) {
  const MemoryDump a = named("a").add("x", 2, {1}, {row(1)});
  MemoryDump b = named("b").add("x", 3, {1}, {row(1)});
  expect_in(trouble(a, b), "b: record 'x': its 3 tokens are not the 2 tokens that a has");
  b = named("b").add("x", 2, {1}, {row(1)});
  b.records[0].tokens_digest[5] ^= 1;
  expect_in(trouble(a, b), "b: record 'x': its 2 tokens are not the 2 tokens");
}

TEST(DumpPair, OtherVocabulary) {
  const MemoryDump a("a", 4), b("b", 5);
  expect_in(trouble(a, b), "b: holds rows of 5 logits, a of 4");
}

TEST(DumpPair, NothingToCompare) {
  expect_in(trouble(named("a"), named("b")), "nothing was compared");
  const MemoryDump none = named("a").add("x", 3, {}, {});
  expect_in(trouble(none, none), "--rows all selects no row of its 1 records; nothing was compared");
  expect_in(trouble(none, none, {7, 9}), "selects no row");
}

TEST(DumpPair, RowsThatARecordPromisesAndDoesNotHold) {
  const MemoryDump a = named("a").add("x", 2, {0, 1}, {row(1), row(2)});
  MemoryDump b = a;
  b.name = "b";
  b.blocks[0][0].n_rows = 1;
  EXPECT_THROW(walk(a, b), Error);
  b.blocks[0].clear();
  EXPECT_THROW(walk(a, b), Error);
}

TEST(DumpPair, ManyRecordsTakeManyBatches) {
  MemoryDump a("a", 1000), b("b", 1000);
  const std::vector<float> values(1000, 1.0f);
  for (int i = 0; i < 600; ++i) {
    a.add(fmt::format("r{}", i), values);
    b.add(fmt::format("r{}", 599 - i), values);
  }
  DumpPair pair(sources(a, b), RowSelection::all());
  RowPairs batch;
  size_t batches = 0, rows = 0;
  while (pair.next(batch)) {
    ++batches;
    for (const RowPair& p : batch.pairs) EXPECT_EQ(batch.records[p.record], fmt::format("r{}", rows++));
  }
  EXPECT_EQ(rows, 600u);
  EXPECT_EQ(pair.n_records(), 600u);
  EXPECT_GE(batches, 4u);
}

TEST(IdSet, RemembersWithinItsBound) {
  IdSet ids;
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) EXPECT_TRUE(ids.insert(std::to_string(i)));
  for (int i = 0; i < kCount; i += 997) EXPECT_FALSE(ids.insert(std::to_string(i)));
  EXPECT_TRUE(ids.contains("99999"));
  EXPECT_FALSE(ids.contains("100000"));
  EXPECT_EQ(ids.size(), static_cast<size_t>(kCount));
  EXPECT_LE(ids.n_bytes(), 28u * kCount + 16384u);
}

}  // namespace
}  // namespace logitgate
