// The two loops over token records: batched prefill and tokenwise decode-prime, from records to rows in a dump.
// Contract: a record's rows have the same bits whatever shares its batch, whatever batch_tokens or lanes, and in whatever
// order records come. Memory: activations of one batch, the KV cache of the records in flight, one chunk of logits.
#pragma once

#include <cstdint>
#include <functional>

#include "formats/dump_writer.h"
#include "formats/token_jsonl.h"
#include "lib/arch/architecture.h"
#include "lib/rows.h"

namespace logitgate {

struct RunOptions {
  RowSelection rows;
  int32_t batch_tokens = 0;    // prefill: most tokens in one pass; 0: chosen from memory
  int32_t lanes = 0;           // decode: records advanced in lockstep; 0: chosen from memory
  int32_t longest_record = 0;  // tokens, where known beforehand; 0: unknown
  uint64_t shard_index = 0;    // of the records, those whose index mod shard_count is shard_index
  uint64_t shard_count = 1;
  // Called after each pass with the records and tokens finished so far.
  std::function<void(uint64_t records, uint64_t tokens)> progress;
};

struct RunTotals {
  uint64_t records = 0;
  uint64_t tokens = 0;
  uint64_t rows = 0;
  double compute_seconds = 0;
};

// Every record of the reader that belongs to the shard and that the writer does not hold yet; the caller finishes the dump.
RunTotals run_prefill(Architecture& model, Backend& backend, TokenReader& reader, DumpWriter& writer,
                      const RunOptions& options);
RunTotals run_decode_prime(Architecture& model, Backend& backend, TokenReader& reader, DumpWriter& writer,
                           const RunOptions& options);

}  // namespace logitgate
