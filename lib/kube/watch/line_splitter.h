// Cuts a stream that comes in chunks of any size into its lines: the framing of a watch, one JSON object a line.
//
// Time is linear in the bytes; a line that lies within one chunk is not copied. Memory: the line that has begun. Not thread-safe.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kube {

class LineSplitter {
 public:
  explicit LineSplitter(size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}

  // Calls `line` for each line that ends in this chunk, without its end; empty ones, with which some servers say that they live, are left
  // out. The text is valid during the call. Stops at the first error of `line`, or with ResourceExhausted at a line that is too long;
  // after an error the splitter is of no more use.
  absl::Status Push(absl::string_view chunk, absl::FunctionRef<absl::Status(absl::string_view line)> line);

  // Bytes of a line that has not ended.
  size_t pending_bytes() const { return begun_.size(); }

 private:
  const size_t max_line_bytes_;
  std::string begun_;
};

}  // namespace fusionllm::kube
