// `logitgate decode-prime`: token batches through the model one token at a time over a KV cache, logits into a dump.
// Contract: what it does is in engine_verb.h; here are its help and its phase.
#include "cmd/engine_verb.h"

namespace logitgate {

Verb add_decode_prime(CLI::App& app) {
  app.footer(
      "Example:\n"
      "  logitgate decode-prime prompts.jsonl -m model.gguf --rows all -o decode.zst\n"
      "  logitgate decode-prime prompts.jsonl -m model.gguf --precision f64 --lanes 4 -o oracle.zst");
  return add_engine_verb(app, Phase::decode);
}

}  // namespace logitgate
