// s3://BUCKET/KEY: where something lies in an object store. Pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::base {

struct ObjectUri {
  std::string bucket;
  // Of an object, or what the keys of a folder begin with; without a slash at its ends. Empty: the whole bucket. It can be joined to a
  // path: no part of it is empty, "." or "..".
  std::string key;
  bool folder = false;  // it was written with a slash at its end: no object is meant, but what lies below. Not part of what it names.
  bool operator==(const ObjectUri& other) const { return bucket == other.bucket && key == other.key; }
};

// Whether a path is meant as a URI, of whatever scheme, and not as a file: it begins with letters and "://".
bool IsUri(absl::string_view path);

// Errors: InvalidArgument that says what is wrong: another scheme, no bucket or one that no store has, a key that is no path.
absl::StatusOr<ObjectUri> ParseObjectUri(absl::string_view text);
std::string ToString(const ObjectUri& uri);

// Whether a key, or what follows a prefix in it, can be a path below a folder.
bool IsRelativePath(absl::string_view key);

// `uri` with `name` below it.
ObjectUri JoinUri(const ObjectUri& uri, absl::string_view name);

}  // namespace fusionllm::base
