// One line of a watch.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kube {

enum class WatchEventType {
  kAdded,
  kModified,
  kDeleted,
  kBookmark,  // nothing has changed up to its resource version
  kError,     // the object is a metav1.Status; the watch is over
  kUnknown,   // of a newer server
};

struct WatchEvent {
  WatchEventType type = WatchEventType::kUnknown;
  std::string type_name;  // as sent, at most 64 bytes of it
  std::string object;     // its JSON
};

// InvalidArgument for what is no event.
absl::StatusOr<WatchEvent> ParseWatchEvent(absl::string_view line);

// The resource version of a bookmark's object. InvalidArgument where it has none.
absl::StatusOr<std::string> ParseBookmark(absl::string_view object);

// kind of an object; empty where there is none.
std::string KindOf(absl::string_view object);

}  // namespace fusionllm::kube
