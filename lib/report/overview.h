// The head of a run's page as HTML: when it was, its figures in tiles, and those that the plan predicted beside them. Pure functions.
#pragma once

#include <cstddef>
#include <string>

#include "lib/report/run_record.h"

namespace fusionllm::report {

// What a run is called on its page; `index`: which of several it is.
std::string TitleOf(const Run& run, size_t index);
// "2.14 s", "3m10s": exact where it is short.
std::string TrainingTime(double seconds);

// What was started when, how long it took and what it trains, as a paragraph. Empty text when none of it is known.
std::string WhenSentence(const Run& run);
// Of what was measured only. Empty text of a run without steps.
std::string Tiles(const Run& run);
// Key figures, measured beside predicted. Empty text when there are none.
std::string FiguresTable(const Run& run);

}  // namespace fusionllm::report
