// What inspect says of a model, a dump and a token batch, as JSON in the order in which it is shown.
// Contract: --verify reads every byte and throws for the first that is wrong; without it a file is read as far as its shape needs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace logitgate {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string input;  // a path, or "-" for stdin
  bool verify = false;
  bool json = false;
  bool devices = false;
  int threads = 0;
};

Json inspect_model(const InspectOptions& options);
Json inspect_dump(const InspectOptions& options);
Json inspect_batch(const InspectOptions& options);
// What --device can name here: the CPU and every GPU, the unusable ones with the reason.
Json inspect_devices();

}  // namespace logitgate
