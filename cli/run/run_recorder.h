// Reads the JSON lines of a run (docs/reference/events.md) into a report::Run.
//
// Lenient, as a reader of another program's output must be: unknown types and fields are passed over, missing fields keep their defaults,
// a number that JSON cannot write (null) is NaN. Not thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/report/run_record.h"

namespace fusionllm::cli {

enum class LineType { kPlan, kStep, kEvaluation, kEvent, kTrace, kSummary, kError, kOther };

class RunRecorder {
 public:
  struct ErrorLine {
    std::string code;    // name of an absl::StatusCode
    std::string reason;  // CamelCase; of a refusal
    std::string message;
  };

  explicit RunRecorder(report::Run* run) : run_(run) {}

  // InvalidArgument when the line is no JSON object; nothing is changed then.
  absl::StatusOr<LineType> Add(absl::string_view line);
  // Of the newest error line.
  const ErrorLine& error() const { return error_; }

 private:
  report::Run* const run_;
  ErrorLine error_;
};

// The line, a JSON object, with one more field (or another value of it).
std::string WithField(absl::string_view line, absl::string_view key, absl::string_view value);

}  // namespace fusionllm::cli
