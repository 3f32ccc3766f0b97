// Measures coding and decoding of dumps per core: GB/s of f32 logits and bytes a logit, beside zstd on the raw floats.
// Contract: prints one line a case; every result is checked before it is timed. Times are of the whole writer and reader on one
// coding or decoding thread, in CPU time of the process, to a file in $TMPDIR (a memory file system if that is one).
#include <sys/resource.h>
#include <zstd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "formats/block_codec.h"
#include "formats/dump_reader.h"
#include "formats/dump_writer.h"
#include "formats/npy.h"
#include "lib/error.h"

namespace {

using namespace logitgate;

// Logits that are written as several records, each the same.
struct Case {
  std::string name;
  uint32_t n_vocab = 0;
  std::vector<float> logits;
  uint32_t n_records = 1;
  uint32_t n_rows() const { return static_cast<uint32_t>(logits.size() / n_vocab); }
  double gigabytes() const { return n_records * static_cast<double>(logits.size() * sizeof(float)) * 1e-9; }
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

template <class F>
double best_cpu_seconds(F f) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const double before = cpu_seconds();
    f();
    best = std::min(best, cpu_seconds() - before);
  }
  return best;
}

// As an engine hands them over: a few rows in a buffer that is used again and again.
Case peaked(const std::string& name, float mean, float sigma, uint32_t n_rows) {
  Case result{name, 151936, {}, 20};
  result.logits.resize(size_t{n_rows} * result.n_vocab);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(mean, sigma);
  for (float& x : result.logits) x = normal(random);
  for (uint32_t r = 0; r < n_rows; ++r)
    result.logits[size_t{r} * result.n_vocab + random() % result.n_vocab] += 15.0f;
  return result;
}

Case golden(const std::string& name) {
  NpyReader npy(std::string(TESTDATA) + "/golden/" + name);
  Case result{name, static_cast<uint32_t>(npy.shape().at(1)), {}, 100};
  result.logits.resize(npy.shape().at(0) * npy.shape().at(1));
  npy.read(std::span<float>(result.logits));
  return result;
}

DumpHeader header_of(const Case& data) {
  DumpHeader header;
  header.n_vocab = data.n_vocab;
  return header;
}

void write(const Case& data, const std::string& path, int level) {
  DumpWriter writer(path, header_of(data), {.level = level, .threads = 1, .force = true});
  for (uint32_t i = 0; i < data.n_records; ++i) {
    DumpRecord record;
    record.id = std::to_string(i);
    record.index = i;
    record.n_tokens = data.n_rows();
    for (uint32_t p = 0; p < data.n_rows(); ++p) record.positions.push_back(p);
    const uint64_t ticket = writer.begin_record(record);
    for (uint32_t r = 0; r < data.n_rows(); ++r) {
      writer.add_rows(ticket, std::span(data.logits).subspan(size_t{r} * data.n_vocab, data.n_vocab), 1);
    }
  }
  writer.finish();
}

// Reads the dump; true if it holds the logits, or with check off if it has as many rows.
bool read(const Case& data, const std::string& path, bool check) {
  DumpReader reader(path, {.threads = 1});
  DumpRecord record;
  RowBlock rows;
  uint32_t records = 0;
  for (; reader.next_record(record); ++records) {
    size_t at = 0;
    for (; reader.next_rows(rows); at += rows.f32.size()) {
      const float* expected = data.logits.data() + at;
      if (check && std::memcmp(rows.f32.data(), expected, rows.f32.size() * sizeof(float)) != 0) return false;
    }
    if (at != data.logits.size()) return false;
  }
  return records == data.n_records;
}

void bench_codec(const Case& data, int level) {
  const DumpHeader header = header_of(data);
  const uint32_t n = std::min(rows_per_block(header.store, header.n_vocab), data.n_rows());
  RowBlock rows;
  rows.n_rows = n;
  rows.f32.assign(data.logits.begin(),
                  data.logits.begin() + static_cast<std::ptrdiff_t>(size_t{n} * data.n_vocab));
  BlockEncoder encoder(header, level);
  BlockDecoder decoder(header);
  ByteBuffer frame;
  RowBlock back;
  const BlockKey key{0, 0, n};
  const std::string name = "memory";
  const uint32_t content = encoder.encode(key, rows, frame);
  decoder.decode({name, 0}, key, frame, content, back);
  if (back.f32.size() != rows.f32.size() ||
      std::memcmp(back.f32.data(), rows.f32.data(), rows.f32.size() * 4) != 0) {
    fail(ErrorCode::corrupt, "{}: the block is not what was coded", data.name);
  }
  const int repeat = static_cast<int>(1 + 200'000'000 / (rows.f32.size() * 4));
  const double gigabytes = repeat * static_cast<double>(rows.f32.size() * 4) * 1e-9;
  const double coding = best_cpu_seconds([&] {
    for (int i = 0; i < repeat; ++i) encoder.encode(key, rows, frame);
  });
  const double decoding = best_cpu_seconds([&] {
    for (int i = 0; i < repeat; ++i) decoder.decode({name, 0}, key, frame, content, back);
  });
  std::printf("%-34s block in cache     code %5.2f GB/s  decode %5.2f GB/s  %.4f bytes/logit\n",
              data.name.c_str(), gigabytes / coding, gigabytes / decoding,
              static_cast<double>(frame.size()) / static_cast<double>(rows.f32.size()));
}

void bench_dump(const Case& data, const std::string& path, int level) {
  write(data, path, level);
  if (!read(data, path, true)) fail(ErrorCode::corrupt, "{}: the dump is not what was written", path);
  const double bytes = static_cast<double>(std::filesystem::file_size(path));
  const double coding = best_cpu_seconds([&] { write(data, path, level); });
  const double decoding = best_cpu_seconds([&] { read(data, path, false); });
  std::printf("%-34s dump --level %d     code %5.2f GB/s  decode %5.2f GB/s  %.4f bytes/logit\n",
              data.name.c_str(), level, data.gigabytes() / coding, data.gigabytes() / decoding,
              bytes / (data.gigabytes() / 4e-9));
}

void bench_zstd(const Case& data, int level) {
  const size_t row_bytes = size_t{data.n_vocab} * sizeof(float);
  std::vector<char> out(ZSTD_compressBound(data.logits.size() * sizeof(float)));
  size_t bytes = 0;
  const int repeat = 1 + static_cast<int>(50'000'000 / (data.logits.size() * sizeof(float)));
  const double gigabytes = repeat * static_cast<double>(data.logits.size() * sizeof(float)) * 1e-9;
  const double coding = best_cpu_seconds([&] {
    for (int i = 0; i < repeat; ++i) {
      bytes = ZSTD_compress(out.data(), out.size(), data.logits.data(), data.n_rows() * row_bytes, level);
    }
  });
  std::printf("%-34s zstd -%d raw floats code %5.2f GB/s                      %.4f bytes/logit\n",
              data.name.c_str(), level, gigabytes / coding,
              static_cast<double>(bytes) / static_cast<double>(data.logits.size()));
}

}  // namespace

int main() try {
  const char* folder = std::getenv("TMPDIR");
  const std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/dump_bench.zst";
  const Case cases[] = {golden("qwen3.f32.logits.npy"), golden("qwen3.q8_0.logits.npy"),
                        peaked("normal(-1, 2.5), vocabulary 151936", -1.0f, 2.5f, 8),
                        peaked("normal(0, 3), vocabulary 151936", 0.0f, 3.0f, 8)};
  for (const Case& data : cases) {
    bench_codec(data, 3);
    bench_dump(data, path, 3);
    bench_dump(data, path, 9);
    bench_zstd(data, 1);
    bench_zstd(data, 3);
  }
  std::filesystem::remove(path);
  return 0;
} catch (const logitgate::Error& error) {
  std::fprintf(stderr, "dump_bench: %s\n", error.what());
  return 2;
}
