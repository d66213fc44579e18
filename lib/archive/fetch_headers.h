// What can be known of a model in an object store without fetching it: which tensors its files hold.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "lib/base/object_uri.h"
#include "lib/objectstore/object_store.h"

namespace fusionllm::archive {

// Where the object `latest` of a prefix with several checkpoints leads; `uri` where there is none. Errors: those of ObjectStore, and
// InvalidArgument for a `latest` that names no checkpoint.
absl::StatusOr<base::ObjectUri> FollowLatest(objectstore::ObjectStore& store, const base::ObjectUri& uri);

// Makes in the empty folder `folder` what checkpoint::CheckpointReader opens as it would what `uri` names, a .safetensors file or a folder
// with some: of each the header is fetched, by ranges, and the rest is a hole of the file, which reads as zeros and takes no room; of JSON
// what a reader looks at, whole. Costs a listing, and two small requests for each file. Returns the path of file or folder. Blocks.
// Errors: NotFound when the store has nothing of that name, else those of ObjectStore and of writing here. A file that is none of the
// format is an error when it is opened.
absl::StatusOr<std::string> FetchHeaders(objectstore::ObjectStore& store, const base::ObjectUri& uri, const std::string& folder);

}  // namespace fusionllm::archive
