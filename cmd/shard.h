// The share of the records that one process of several takes.
// Contract: the shares of 0/N … N-1/N are disjoint and together everything, whatever the order of the processes.
#pragma once

#include <cstdint>
#include <string>

namespace logitgate {

// Every record whose index mod count is `index` belongs to this process.
struct Shard {
  uint64_t index = 0;
  uint64_t count = 1;
  bool given = false;  // --shard was on the command line

  bool takes(uint64_t record_index) const { return record_index % count == index; }
  friend bool operator==(const Shard&, const Shard&) = default;
};

// "I/N" with 0 ≤ I < N, or "auto": the place among the tasks of a Slurm job array (SLURM_ARRAY_TASK_ID, _MIN,
// _COUNT) or of a job step (SLURM_PROCID, SLURM_NTASKS). Trouble where there are none, or both and they
// disagree.
Shard parse_shard(const std::string& text);

}  // namespace logitgate
