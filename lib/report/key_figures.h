// What one asks of a run first, what was measured beside what the plan promised: the lines of its summary and a table of its report.
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/report/run_record.h"

namespace fusionllm::report {

struct KeyFigure {
  std::string name;
  std::string measured;         // empty: nothing was
  std::string predicted;        // empty: nothing was
  std::string remark;           // what the figures are of; may be empty
  bool in_words = false;        // measured and predicted are parts of a sentence
  bool measured_first = false;  // of such a sentence: the prediction is of a step that was not what came
};
// "0.72s measured, 0.71s predicted (median; measured is +1.4%)". Words that are no figures are joined by a semicolon.
std::string InOneSentence(const KeyFigure& figure);

// Loss, time, traffic, what limits the step, compression, memory: those of which something is known, always in the same order.
std::vector<KeyFigure> KeyFigures(const Run& run);

// Of a step, as planned, in all directions. Between sites where they are known (KnowsSites), else over all links.
int64_t PlannedBytes(const Run& run);
// Of this start, as measured, over the same links.
struct MeasuredBytes {
  int64_t all = 0;
  int64_t evaluation = 0;
  bool evaluation_known = true;  // else evaluation is not known, and part of training
  int64_t training() const { return all - evaluation; }
};
MeasuredBytes BytesOfRun(const Run& run);
bool KnowsSites(const Run& run);

// Whether messages between its stages are compressed.
bool Compresses(const plan::Plan& plan);

}  // namespace fusionllm::report
