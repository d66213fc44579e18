// The XML that an S3 server speaks: listings and errors in, the parts of an upload out. Pure functions over untrusted bytes, by pugixml,
// which expands no entities of a document's own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::objectstore {

struct ObjectInfo {
  std::string key;
  int64_t bytes = 0;
  std::string etag;           // as the server writes it, quotes included; the same as long as the object is
  std::string last_modified;  // ISO 8601 in UTC: later sorts behind earlier
};

struct Listing {
  std::vector<ObjectInfo> objects;
  std::string next;  // token of the page that follows; empty: this is the last
};

// An answer to ListObjectsV2. InvalidArgument that says what is missing or out of range.
absl::StatusOr<Listing> ParseListing(absl::string_view xml);

struct ServerError {
  std::string code;     // empty: the answer does not say
  std::string message;  // likewise
};
// What an answer with an error says; control characters are left out, and no more than a few hundred bytes are taken.
ServerError ParseError(absl::string_view xml);

// The UploadId of an answer to CreateMultipartUpload. InvalidArgument when there is none.
absl::StatusOr<std::string> ParseUploadId(absl::string_view xml);

// The body of CompleteMultipartUpload. `etags`: of the parts, from the first.
std::string PrintParts(const std::vector<std::string>& etags);

}  // namespace fusionllm::objectstore
