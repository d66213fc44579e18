// Lists as a hostile server may send them: cut anywhere they give the same, and what is accepted is a list.
#include <algorithm>

#include "lib/base/testing/fuzz.h"
#include "lib/kube/watch/list_splitter.h"
#include "lib/kube/watch/object.h"

namespace fusionllm::kube {
namespace {

std::vector<std::string> Seeds() {
  return {
      R"({"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"x"},"items":[{"metadata":{"name":"a","resourceVersion":"5"}},)"
      R"({"metadata":{"name":"b","namespace":"n","uid":"u","resourceVersion":"6","labels":{"a":"]}\""},"managedFields":[{"f":{}}],)"
      R"("ownerReferences":[{"uid":"o","controller":true}]},"spec":{"nodeName":"n"},"status":{"phase":"Failed","containerStatuses":[{"name":"c",)"
      R"("state":{"terminated":{"exitCode":1}}}],"conditions":[{"type":"Ready","status":"True"}]}}]})",
      R"({"items":null,"kind":"PodList"})"};
}

std::vector<std::string> Words() {
  return {"\"items\":[", "{", "}", "[", "]", "\\\"", "\\u00e9", "null", "\"metadata\":{", "\"resourceVersion\":\"1\""};
}

struct Outcome {
  bool accepted = false;
  std::vector<std::string> objects;
};

Outcome Split(absl::string_view input, size_t chunk) {
  Outcome outcome;
  ListSplitter splitter(4096);
  for (size_t at = 0; at < input.size(); at += chunk) {
    const absl::Status status = splitter.Push(input.substr(at, chunk), [&](absl::string_view json) {
      FUZZ_CHECK(json.size() >= 2 && json.size() <= 4096 && json.front() == '{' && json.back() == '}');
      outcome.objects.emplace_back(json);
      return absl::OkStatus();
    });
    if (!status.ok()) return outcome;
  }
  outcome.accepted = splitter.Finish().ok();
  return outcome;
}

bool Accepts(absl::string_view input) {
  const Outcome whole = Split(input, std::max<size_t>(input.size(), 1));
  for (const size_t chunk : {1, 7}) {
    const Outcome pieces = Split(input, chunk);
    FUZZ_CHECK(pieces.accepted == whole.accepted && pieces.objects == whole.objects);
  }
  for (const std::string& json : whole.objects) {
    for (const auto decode : {DecodeMetadata, DecodeJson, DecodePod}) {
      const auto object = decode(json);
      if (object.ok()) FUZZ_CHECK(!(*object)->meta.name.empty());
      // What is kept whole can be read again, to the same.
      const auto* kept = object.ok() ? dynamic_cast<const JsonObject*>(object->get()) : nullptr;
      if (kept != nullptr) FUZZ_CHECK(DecodeJson(kept->json).ok() && (*DecodeJson(kept->json))->meta.name == kept->meta.name);
    }
  }
  return whole.accepted;
}

}  // namespace
}  // namespace fusionllm::kube

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {kube::Seeds, kube::Words, kube::Accepts}; }
