// Takes the answer to a LIST apart as it comes in: its objects one by one, and the head around them.
//
// So a list of 10,000 objects needs the memory of the largest of them, not of all. Time is linear in the bytes. What lies inside an object
// is only looked at for where it ends; what decodes it finds what is wrong with it. Not thread-safe.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kube {

struct ListHead {
  std::string kind;         // "PodList"
  std::string api_version;  // "v1"
  std::string resource_version;
  std::string continue_token;  // empty: this was the last page
};

class ListSplitter {
 public:
  explicit ListSplitter(size_t max_object_bytes) : max_object_bytes_(max_object_bytes) {}

  // Calls `object` with the text of each element of "items" that ends in this chunk, valid during the call. Stops at the first error of
  // `object`, or with its own: InvalidArgument, or ResourceExhausted for an object or a head that is too long. After an error the splitter
  // is of no more use.
  absl::Status Push(absl::string_view chunk, absl::FunctionRef<absl::Status(absl::string_view json)> object);

  // After the last chunk. InvalidArgument when it was no whole list.
  absl::StatusOr<ListHead> Finish() const;

 private:
  absl::Status Append(absl::string_view text);

  const size_t max_object_bytes_;
  std::string head_;   // everything but the elements of "items", without blanks
  std::string begun_;  // an element that has not ended
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool in_items_ = false;
  bool had_items_ = false;
};

}  // namespace fusionllm::kube
