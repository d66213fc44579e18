// Files that lie in an object store, brought to a folder here before they are read.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "lib/base/object_uri.h"
#include "lib/objectstore/object_store.h"

namespace fusionllm::objectstore {

struct FoundObjects {
  bool single = false;                        // the URI names an object
  std::map<std::string, ObjectInfo> objects;  // by path below the URI; of a single one by its own name
};

// What `uri` names: that object, else the first `max_objects` objects whose keys continue the URI's behind a slash, with hidden names left
// out of them; what is beyond `max_objects` is left out without an error. Blocks. Errors: NotFound when the store has nothing of that name,
// InvalidArgument for keys that are no paths (one in another among them), else those of ObjectStore.
absl::StatusOr<FoundObjects> FindObjects(ObjectStore& store, const base::ObjectUri& uri, size_t max_objects);

// Brings what `uri` names into a folder of its own below `scratch` and returns its path there: of the file, if that is an object, else of
// the folder with all objects whose keys continue the URI's behind a slash, with hidden names (a leading dot) left out. What is there from
// before and has not changed in the store, by ETag and length, is not fetched again; what is not in the store any more goes. Processes that
// share `scratch` wait for each other, so that each object comes once. Blocks. Errors: those of FindObjects and of writing here.
absl::StatusOr<std::string> Fetch(ObjectStore& store, const base::ObjectUri& uri, const std::string& scratch);

// Whether Fetch would find something: one small request. NotFound, else as above.
absl::Status CheckExists(ObjectStore& store, const base::ObjectUri& uri);

}  // namespace fusionllm::objectstore
