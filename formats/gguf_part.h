// One file of a GGUF model, parsed: metadata and tensor table. Internal to formats/gguf.
// Contract: what parse returns is checked in itself: names are unique, tensors lie inside the file and do not
// overlap. Errors as in gguf.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/mapped_file.h"

namespace logitgate {

struct GgufPart {
  explicit GgufPart(const std::string& path) : file(path) {}
  MappedFile file;
  uint32_t version = 0;
  std::map<std::string, GgufValue> metadata;
  std::vector<GgufTensor> tensors;
};

GgufPart parse_gguf_part(const std::string& path);

// What kind of value this is, for messages: "an integer", "an array of string".
std::string gguf_kind(const GgufValue& value);
// The value as the kind named; Error{corrupt} naming file and key where it is another.
uint64_t gguf_as_u64(const std::string& path, std::string_view key, const GgufValue& value);

}  // namespace logitgate
