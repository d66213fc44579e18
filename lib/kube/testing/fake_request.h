// What a request to an API server asks for, read from its method, path, query and headers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/kube/api/resource.h"
#include "lib/kube/http/transport.h"

namespace fusionllm::kube::testing {

struct FakeRequest {
  std::string verb;  // as Fault::verb; "path" for what is about no object
  std::string path;  // without the query
  std::string group, version, plural;
  ObjectKey key;  // of a collection without a name
  std::string subresource;
  std::map<std::string, std::string> query;
  std::string media_type;
  bool metadata_only = false;
  std::string user_agent;

  std::string Query(const std::string& name) const {
    const auto found = query.find(name);
    return found == query.end() ? "" : found->second;
  }
};

// Never fails: what it does not know is a "path".
FakeRequest ReadRequest(const HttpRequest& request);

}  // namespace fusionllm::kube::testing
