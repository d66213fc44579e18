// JSON of Kubernetes objects, lists and watch events for tests.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/kube/api/resource.h"

namespace fusionllm::kube::testing {

inline Resource Pods() { return {"", "v1", "pods", "Pod", true}; }

// A Pod "ns/name"; `uid` defaults to one made of the name. `more` is put after the metadata's other fields, with a comma before it.
inline std::string PodJson(const std::string& name, const std::string& version, const std::string& uid = "", const std::string& more = "") {
  return absl::StrCat(R"({"kind":"Pod","apiVersion":"v1","metadata":{"name":")", name, R"(","namespace":"ns","uid":")",
                      uid.empty() ? "uid-" + name : uid, R"(","resourceVersion":")", version, "\"", more,
                      R"(},"status":{"phase":"Running"}})");
}

inline std::string ListJson(const std::vector<std::string>& items, const std::string& version, const std::string& continue_token = "",
                            const std::string& kind = "PodList") {
  return absl::StrCat(R"({"kind":")", kind, R"(","apiVersion":"v1","metadata":{"resourceVersion":")", version, R"(","continue":")",
                      continue_token, R"("},"items":[)", absl::StrJoin(items, ","), "]}");
}

inline std::string EventJson(const std::string& type, const std::string& object) {
  return absl::StrCat(R"({"type":")", type, R"(","object":)", object, "}\n");
}

inline std::string BookmarkJson(const std::string& version) {
  return EventJson("BOOKMARK", absl::StrCat(R"({"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":")", version, "\"}}"));
}

inline std::string StatusJson(int code, const std::string& reason, const std::string& message) {
  return absl::StrCat(R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":")", message, R"(","reason":")", reason,
                      R"(","code":)", code, "}");
}

}  // namespace fusionllm::kube::testing
