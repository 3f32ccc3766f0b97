// recover_dump: what is complete in a cut or damaged dump, as a finished one.
// Contract: see dump_reader.h; finished segments are copied byte for byte, of the one that was cut the
// complete records are.
#include <vector>

#include "formats/dump_reader.h"
#include "formats/dump_walker.h"
#include "formats/input_file.h"
#include "formats/output_file.h"
#include "formats/segment_index.h"
#include "lib/error.h"

namespace logitgate {

namespace {

FrameScanner::Source source_at(const InputFile& input, uint64_t& at) {
  return [&input, &at](void* data, size_t n) {
    const size_t got = input.read_at(at, data, n);
    at += got;
    return got;
  };
}

void copy_bytes(const InputFile& input, uint64_t n, OutputFile& output) {
  std::vector<char> piece(size_t{1} << 20);
  for (uint64_t at = 0; at < n;) {
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(piece.size(), n - at));
    if (input.read_at(at, piece.data(), wanted) != wanted) {
      fail(ErrorCode::io, "{}: became shorter while it was read", input.name());
    }
    output.write(piece.data(), wanted);
    at += wanted;
  }
}

}  // namespace

uint64_t recover_dump(const std::string& in, const std::string& out, bool force, std::string* damage) {
  const InputFile input(in);
  if (!input.seekable())
    fail(ErrorCode::usage, "{}: recover reads its input twice; name a file", input.name());
  check_output_is_free(out, force);
  uint64_t at = 0;
  const CompletePart part = find_complete_part(input.name(), source_at(input, at));
  if (part.end_offset == 0) fail(ErrorCode::corrupt, "{}", part.damage);
  if (damage != nullptr) *damage = part.damage;
  OutputFile output(out, {.binary = true, .force = force, .resume = false});
  copy_bytes(input, part.segment_offset, output);
  if (part.segment_header) {
    const auto write = [&](ByteSpan bytes) { output.write(bytes.data(), bytes.size()); };
    SegmentIndex index;
    at = part.segment_offset;
    gather_index(input.name(), source_at(input, at), part.end_offset - part.segment_offset, index, write,
                 [](uint64_t) {});
    index.finish(*part.segment_header, write);
  }
  output.commit();
  return part.n_records;
}

}  // namespace logitgate
