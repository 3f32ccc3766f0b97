// Measures every pair of rows of two dumps with several threads.
// Contract: on_row is called on the caller's thread, in the order of the pairs; it returns false to stop early. The
// result does not depend on the number of threads.
#pragma once

#include <functional>

#include "lib/dump_pair.h"
#include "lib/metrics.h"

namespace logitgate {

// threads = 0: one a core.
void measure_pairs(DumpPair& dumps, const MeasureOptions& options, int threads,
                   const std::function<bool(const RowKey&, const RowStats&)>& on_row);

}  // namespace logitgate
