// Tests the reader of token batches: records, ids, limits, compression, and errors with their line and column.
// Contract: every bad line is refused with the message given beside it.
#include "formats/token_jsonl.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "formats/line_reader.h"
#include "lib/error.h"

namespace logitgate {
namespace {

using Tokens = std::vector<int32_t>;

class TokenJsonl : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "token_jsonl_" + std::to_string(::getpid());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& text, const std::string& name = "in.jsonl") const {
    const std::string path = directory_ + "/" + name;
    std::filesystem::remove(path);  // rewriting in place is slow where the filesystem then syncs
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string compress(const std::string& text) {
    std::string out(ZSTD_compressBound(text.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
    return out;
  }
  static std::vector<TokenRecord> read(const std::vector<std::string>& inputs,
                                       const TokenLimits& limits = {}) {
    TokenReader reader(inputs, limits);
    std::vector<TokenRecord> records;
    for (TokenRecord record; reader.next(record);) records.push_back(record);
    return records;
  }
  // The error of reading `text`, without the path.
  std::string error_of(const std::string& text, const TokenLimits& limits = {}) const {
    const std::string path = write(text);
    try {
      validate_tokens({path}, limits);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.message();
      EXPECT_TRUE(error.message().starts_with(path + ": ")) << error.message();
      EXPECT_EQ(error.message().find('\n'), std::string::npos);
      return error.message().substr(path.size() + 2);
    }
    return "no error";
  }

  std::string directory_;
};

TEST_F(TokenJsonl, GoldenBatch) {
  const auto records = read({std::string(TESTDATA) + "/golden/tokens.jsonl"}, {272, 1024, false});
  ASSERT_EQ(records.size(), 8u);
  EXPECT_EQ(records[0].id, "text-001");
  EXPECT_EQ(records[2].tokens, (Tokens{257, 123, 34}));
  EXPECT_EQ(records[7].tokens.size(), 300u);
  EXPECT_EQ(records[7].index, 7u);
}

TEST_F(TokenJsonl, FieldsAndIds) {
  const auto records =
      read({write("\xef\xbb\xbf{\"tokens\":[1,2]}\r\n\n  \t\r\n"
                  "{\"id\": 7, \"input_ids\": [ 3 ], \"text\": \"a\\\"}{\\u00e9\", \"x\": "
                  "[1,[2.5e3,{\"a\":null}],true,-0]}\n"
                  " {\"prompt_token_ids\" : [0,2147483647] , \"id\":\"\xc3\xa9\\n\\u20ac\"} \n"
                  "{\"to\\u006bens\":[5],\"id\":-123456789012345678901234567890}\n"
                  "{\"id\":-1,\"tokens\":[0],\"tokenss\":[],\"big\":123456789012345678901234567890}")});
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0].id, "0");
  EXPECT_EQ(records[0].tokens, (Tokens{1, 2}));
  EXPECT_EQ(records[1].id, "7");
  EXPECT_EQ(records[1].tokens, (Tokens{3}));
  EXPECT_EQ(records[2].id, "\xc3\xa9\n\xe2\x82\xac");
  EXPECT_EQ(records[2].tokens, (Tokens{0, 2147483647}));
  EXPECT_EQ(records[3].id, "-123456789012345678901234567890");
  EXPECT_EQ(records[3].tokens, (Tokens{5}));
}

TEST_F(TokenJsonl, FieldsAndIdsMinusZeroMeetsDefault) {
  EXPECT_EQ(error_of("{\"tokens\":[1]}\n{\"id\":-0,\"tokens\":[1]}\n"),
            "line 2, column 1: an earlier record has the id '0' too, and ids must be unique");
}

TEST_F(TokenJsonl, SeveralInputsShareNumbersAndIds) {
  const std::string a = write("{\"tokens\":[1]}\n{\"tokens\":[2]}\n", "a");
  const std::string b = write("{\"tokens\":[3]}\n{\"id\":\"1\",\"tokens\":[4]}\n", "b");
  TokenReader reader({a, b}, {});
  TokenRecord record;
  ASSERT_TRUE(reader.next(record) && reader.next(record) && reader.next(record));
  EXPECT_EQ(record.id, "2");
  EXPECT_EQ(record.index, 2u);
  try {
    reader.next(record);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              b + ": line 2, column 1: an earlier record has the id '1' too, and ids must be unique");
  }
}

TEST_F(TokenJsonl, Limits) {
  const std::string path = write("{\"tokens\":[1,2,3]}\n");
  EXPECT_EQ(read({path}, {4, 3, false})[0].tokens, (Tokens{1, 2, 3}));
  EXPECT_EQ(read({path}, {4, 2, true})[0].tokens, (Tokens{1, 2}));
  EXPECT_EQ(error_of("{\"tokens\":[1,2,3]}", {4, 2, false}),
            "line 1, column 11: the record has 3 tokens, and the model's context 2; --truncate cuts it");
  EXPECT_EQ(error_of("{\"tokens\":[1,2,3]}", {3, 0, false}),
            "line 1, column 16: token 3 is outside the vocabulary: ids are 0 to 2");
  EXPECT_EQ(error_of("{\"tokens\":[1,2,3]}", {3, 2, true}),
            "line 1, column 16: token 3 is outside the vocabulary: ids are 0 to 2");
}

TEST_F(TokenJsonl, Totals) {
  const TokenTotals totals = validate_tokens({write("{\"tokens\":[1,2,3]}\n{\"tokens\":[1]}")}, {});
  EXPECT_EQ(totals.records, 2u);
  EXPECT_EQ(totals.tokens, 4u);
  EXPECT_EQ(totals.longest, 3u);
  EXPECT_EQ(error_of(""), "holds no record; give JSON lines like {\"id\": \"a\", \"tokens\": [1, 2]}");
  EXPECT_EQ(error_of("\n\r\n \n"),
            "holds no record; give JSON lines like {\"id\": \"a\", \"tokens\": [1, 2]}");
}

TEST_F(TokenJsonl, NoRecordAtAllIsAnErrorOfTheReaderToo) {
  const std::string empty = write("\n", "empty");
  const std::string one = write("{\"tokens\":[1]}", "one");
  EXPECT_EQ(read({empty, one, empty}).size(), 1u);
  try {
    read({empty, empty});
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(error.message().starts_with("the inputs: holds no record")) << error.message();
  }
}

TEST_F(TokenJsonl, BadTokens) {
  EXPECT_EQ(error_of("{\"tokens\":[]}"),
            "line 1, column 11: 'tokens' is empty, and a record has one token at least");
  EXPECT_EQ(error_of("{\"id\":\"a\"}"),
            "line 1, column 1: the record has no 'tokens' (or 'input_ids' or 'prompt_token_ids'): a list of "
            "token ids");
  EXPECT_EQ(error_of("{\"tokens\":7}"), "line 1, column 11: 'tokens' must be a list of token ids");
  EXPECT_EQ(error_of("\n{\"tokens\":[1],\n"),
            "line 2, column 15: the line does not end with the '}' of its record: "
            "it is cut, or something follows");
  EXPECT_EQ(error_of("{\"tokens\":[1],\"input_ids\":[1]}"),
            "line 1, column 15: 'input_ids' gives the record tokens a second time");
  EXPECT_EQ(error_of("{\"tokens\":[1],\"tokens\":[1]}"),
            "line 1, column 15: 'tokens' gives the record tokens a second time");
  const std::string must = "' where a token id must be: an integer of 0 or more";
  for (const std::string bad : {"1.5", "1e3", "\"1\"", "true", "null", "01", "1x", "+1", "-", "0x1", "NaN"}) {
    EXPECT_EQ(error_of("{\"tokens\":[4, " + bad + "]}"), "line 1, column 15: '" + bad + must);
  }
  EXPECT_EQ(error_of("{\"tokens\":[4, [1]]}"), "line 1, column 15: '[" + must);
  for (const std::string bad :
       {"-1", "2147483648", "4294967296", "18446744073709551616", "99999999999999999999999"}) {
    EXPECT_EQ(error_of("{\"tokens\":[4, " + bad + "]}"),
              "line 1, column 15: token " + bad + " is outside the vocabulary: ids are 0 to 2147483647");
  }
}

TEST_F(TokenJsonl, BadIds) {
  EXPECT_EQ(error_of("{\"id\":\"\",\"tokens\":[1]}"),
            "line 1, column 7: the id is empty: give a name, or leave it out");
  for (const std::string bad : {"1.0", "null", "true", "1e3"}) {
    EXPECT_EQ(error_of("{\"id\":" + bad + ",\"tokens\":[1]}"),
              "line 1, column 7: '" + bad + "' where the id must be: a string or an integer");
  }
  EXPECT_EQ(error_of("{\"id\":\"" + std::string(65536, 'x') + "\",\"tokens\":[1]}"), "no error");
  EXPECT_EQ(error_of("{\"id\":\"" + std::string(65537, 'x') + "\",\"tokens\":[1]}"),
            "line 1, column 7: the id has 65537 bytes, and a dump's records hold 65536 at most");
  EXPECT_EQ(error_of("{\"id\":1,\"id\":2,\"tokens\":[1]}"),
            "line 1, column 9: 'id' gives the record a second id");
  EXPECT_EQ(error_of("{\"id\":\"a\\nb\",\"tokens\":[1]}\n{\"tokens\":[1],\"id\":\"a\\nb\"}"),
            "line 2, column 1: an earlier record has the id 'a\\x0ab' too, and ids must be unique");
}

TEST_F(TokenJsonl, BadJson) {
  const auto starts = [&](const std::string& text, const std::string& want) {
    const std::string got = error_of(text);
    EXPECT_TRUE(got.starts_with(want)) << text << "\n  got  " << got << "\n  want " << want;
  };
  starts("[1,2]", "line 1, column 1: a record must be a JSON object");
  starts("  17", "line 1, column 3: a record must be a JSON object");
  starts("hello", "line 1, column 1: a record must be a JSON object");
  starts("{\"tokens\":[1]}{\"tokens\":[2]}", "line 1, column 15: something follows the record");
  starts("{\"tokens\":[1]} x", "line 1, column 17: the line does not end with the '}'");
  starts("{\"tokens\":[1 2]}", "line 1, column 14: invalid JSON");
  starts("{\"tokens\":[1,]}", "line 1, column 14: ']' where a token id");
  starts("{\"tokens\":[,1]}", "line 1, column 12: ',' where a token id");
  starts("{\"tokens\" [1]}", "line 1, column 11: invalid JSON");
  starts("{\"tokens\":[1],}", "line 1, column ");
  starts("{tokens:[1]}", "line 1, column 2: invalid JSON");
  starts("{\"tokens\":[1}", "line 1, column 13: invalid JSON");
  starts("{\"tokens\":[1],\"x\":\"\\q\"}", "line 1, column ");
  starts("{\"tokens\":[1],\"x\":\"\\ud800\"}", "line 1, column ");
  starts("{\"tokens\":[1],\"x\":tru}", "line 1, column 19: 'tru' is not a JSON value");
  starts("{\"tokens\":[1],\"x\":[1,01]}", "line 1, column 22: '01' is not a JSON value");
  starts("{\"tokens\":[1],\"x\":{\"y\":1.}}", "line 1, column 24: '1.' is not a JSON value");
  starts("{\"tokens\":[1],\"x\":}", "line 1, column 19: '}' is not a JSON value");
  starts("{\"tokens\":[1],\"x\":\"abc}", "line 1, column 24: the line ends inside a string");
  starts("{\"tokens\":[1],\"x\":\"a\tb\"}", "line 1, column 21: a control character inside a string");
  starts("{\"tokens\":[1],\"x\":\"a\"b}", "line 1, column ");
  starts(std::string("{\"tokens\":[1],\"x\":\0}", 20), "line 1, column 19");
  starts("{\"tokens\":[1]}\n{\"x\":\"\xc3\xa9\xff\"}", "line 2, column 9: invalid UTF-8");
  starts("{\"tokens\":[1],\"x\":\"\xed\xa0\x80\"}", "line 1, column 20: invalid UTF-8");
}

TEST_F(TokenJsonl, NestedJsonIsBounded) {
  const auto nested = [](int n, bool closed) {
    return "{\"tokens\":[1],\"x\":" + std::string(n, '[') + (closed ? std::string(n, ']') : "") + "}";
  };
  EXPECT_EQ(error_of(nested(127, true)), "no error");
  EXPECT_EQ(error_of(nested(128, true)), "line 1, column 146: JSON nested more than 128 deep");
  EXPECT_EQ(error_of(nested(1000000, false)), "line 1, column 146: JSON nested more than 128 deep");
  std::string objects = "{\"tokens\":[1],\"x\":";
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_NE(error_of(objects + "}").find("nested more than 128 deep"), std::string::npos);
}

TEST_F(TokenJsonl, EveryCutOfALineIsRefused) {
  const std::string line =
      "{\"id\": \"a\\u00e9\", \"tokens\": [1, 22, 3], \"x\": {\"y\": [true, null, -1.5e3]}}";
  EXPECT_EQ(error_of(line), "no error");
  for (size_t n = 1; n < line.size(); ++n) {
    EXPECT_TRUE(error_of(line.substr(0, n)).starts_with("line 1, column ")) << n;
  }
}

TEST_F(TokenJsonl, RandomDamageNeverCrashes) {
  const std::string line =
      "{\"id\": \"a\\u00e9\", \"tokens\": [1, 22, 3], \"x\": {\"y\": [true, null, -1.5e3]}}\n";
  uint64_t state = 1;
  const auto random = [&] {
    return state = state * 6364136223846793005u + 1442695040888963407u, state >> 33;
  };
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = line + line;
    for (int i = 0; i < 1 + round % 4; ++i) {
      damaged[random() % damaged.size()] = "{}[]\",:\\0-1ae \n\xff"[random() % 16];
    }
    const std::string path = write(damaged);
    try {
      validate_tokens({path}, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      EXPECT_EQ(error.message().find('\n'), std::string::npos);
    }
  }
}

TEST_F(TokenJsonl, ZstdByContent) {
  const std::string text = "{\"tokens\":[1]}\n{\"tokens\":[2]}\n";
  EXPECT_EQ(read({write(compress(text), "named.jsonl")}).size(), 2u);
  EXPECT_EQ(read({write(text, "plain.zst")}).size(), 2u);
  const std::string half = "{\"tokens\":[2]}";
  EXPECT_EQ(read({write(compress(text + "{\"id\":\"x\",") + compress("\"tokens\":[3]}\n" + half), "two.zst")})
                .size(),
            4u);
}

TEST_F(TokenJsonl, DamagedZstd) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += fmt::format("{{\"tokens\":[{}]}}\n", i * 7919 % 65536);
  const std::string whole = compress(text);
  for (size_t n : {size_t{5}, whole.size() / 2, whole.size() - 1}) {
    const std::string error = error_of(whole.substr(0, n));
    EXPECT_TRUE(error.ends_with("the zstd stream is cut")) << error;
  }
  std::string flipped = whole;
  flipped[flipped.size() / 2] ^= 1;
  EXPECT_NE(error_of(flipped), "no error");
  EXPECT_TRUE(error_of(whole + "tail").find("damaged zstd stream") != std::string::npos);
}

TEST_F(TokenJsonl, ZstdBombIsRefusedInBoundedMemory) {
  std::string bomb;
  const std::string piece = compress(std::string(size_t{8} << 20, '['));
  for (int i = 0; i < 1000; ++i) bomb += piece;  // 8 GB of one line
  const std::string error = error_of(bomb);
  EXPECT_EQ(error,
            "line 1, column 67108865: the line has no end here, and one of at most 67108864 bytes is read");
}

TEST_F(TokenJsonl, OtherEncodings) {
  for (const std::string start : {"\x1f\x8b\x08\x00\x00", "\xff\xfe{\"", "\xfe\xff{\""}) {
    try {
      read({write(start)});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
    }
  }
}

TEST_F(TokenJsonl, LongLines) {
  std::string line = "{\"tokens\":[0";
  for (int i = 1; i < 500000; ++i) line += fmt::format(",{}", i % 100000);
  const auto records = read({write(line + "]}\n" + line + "]}\n{\"tokens\":[1]}")});
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].tokens.size(), 500000u);
  EXPECT_EQ(records[1].tokens[499999], 99999);
}

TEST_F(TokenJsonl, MissingInput) {
  try {
    read({directory_ + "/nothing"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
  }
  EXPECT_THROW(read({directory_}), Error);
  EXPECT_THROW(TokenReader({"-", "-"}, {}), Error);
}

TEST_F(TokenJsonl, Rereadable) {
  const std::string path = write("{\"tokens\":[1]}");
  const std::string fifo = directory_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_TRUE(TokenReader::rereadable({path, path}));
  EXPECT_FALSE(TokenReader::rereadable({path, fifo}));
  EXPECT_FALSE(TokenReader::rereadable({directory_ + "/nothing"}));
}

TEST_F(TokenJsonl, APipesLineIsGivenWhenItArrives) {
  const std::string fifo = directory_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::atomic<bool> first_read{false};
  std::thread writer([&] {
    std::ofstream out(fifo);
    out << "{\"tokens\":[1]}\n" << std::flush;
    while (!first_read) std::this_thread::yield();
    out << "{\"tokens\":[2]}\n" << std::flush;
  });
  TokenReader reader({fifo}, {});
  TokenRecord record;
  EXPECT_TRUE(reader.next(record));
  first_read = true;
  EXPECT_TRUE(reader.next(record));
  EXPECT_EQ(record.tokens, (Tokens{2}));
  EXPECT_FALSE(reader.next(record));
  writer.join();
}

TEST_F(TokenJsonl, AFileThatChangesBetweenPassesIsCheckedAgain) {
  const std::string path = write("{\"tokens\":[1]}\n{\"tokens\":[2]}\n");
  EXPECT_EQ(validate_tokens({path}, {5, 0, false}).records, 2u);
  TokenReader reader({path}, {5, 0, false});
  TokenRecord record;
  write("{\"tokens\":[1]}\n{\"tokens\":[9]}\n");
  try {
    while (reader.next(record)) {
    }
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
  }
}

TEST_F(TokenJsonl, ManyIds) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += fmt::format("{{\"id\":\"r{}\",\"tokens\":[1]}}\n", i);
  EXPECT_EQ(error_of(text), "no error");
  EXPECT_EQ(error_of(text + "{\"id\":\"r77\",\"tokens\":[1]}\n"),
            "line 200001, column 1: an earlier record has the id 'r77' too, and ids must be unique");
}

}  // namespace
}  // namespace logitgate
