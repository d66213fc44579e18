// s3:// URIs as a job may have them.
#include "lib/base/object_uri.h"
#include "lib/base/testing/fuzz.h"

namespace fusionllm::base {
namespace {

std::vector<std::string> Seeds() {
  return {"s3://models", "s3://models.example-1/runs/gpt2/step-000050/", "s3://abc/a b+c?d#e%2F\xc3\xa9"};
}

std::vector<std::string> Words() { return {"s3://", "..", "/", "/../", "//", ".", "%2e", "\\"}; }

bool Accepts(absl::string_view input) {
  const absl::StatusOr<ObjectUri> uri = ParseObjectUri(input);
  if (!uri.ok()) {
    FUZZ_CHECK(!uri.status().message().empty());
    return false;
  }
  FUZZ_CHECK(IsUri(input));
  FUZZ_CHECK(uri->key.empty() || IsRelativePath(uri->key));
  FUZZ_CHECK(uri->key.empty() || (uri->key.front() != '/' && uri->key.back() != '/'));
  const absl::StatusOr<ObjectUri> again = ParseObjectUri(ToString(*uri));
  FUZZ_CHECK(again.ok() && *again == *uri);
  return true;
}

}  // namespace
}  // namespace fusionllm::base

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {Seeds, Words, Accepts}; }
