// manifest.json as a disk or another program may have left it.
#include "lib/base/testing/fuzz.h"
#include "lib/checkpoint/manifest.h"
#include "nlohmann/json.hpp"

namespace fusionllm::checkpoint {
namespace {

std::vector<std::string> Seeds() {
  Manifest manifest;
  manifest.job_name = "sample";
  manifest.spec_hash = "abc";
  manifest.plan_hash = "def";
  manifest.step = 50;
  manifest.sequence = 3;
  manifest.samples_consumed = 1600;
  manifest.seed = ~uint64_t{0};
  manifest.files = {{"model.safetensors", 1234, std::string(64, 'a'), {}}, {"optimizer.safetensors", 0, std::string(64, '0'), {}}};
  manifest.resolved_job = "a: \"b\"\nc: 'é'\n";
  // Without the checksum, which would keep all damage from what lies behind it, as version 1 had it; and with it.
  nlohmann::ordered_json unsealed = nlohmann::ordered_json::parse(FormatManifest(manifest));
  unsealed.erase("sha256");
  unsealed["format_version"] = 1;
  return {unsealed.dump(2), FormatManifest(manifest)};
}

std::vector<std::string> Words() { return {"4611686018427387904", "\"files\": ", "\"step\": ", "/", "..", ".partial", "manifest.json"}; }

bool Accepts(absl::string_view input) {
  const absl::StatusOr<Manifest> manifest = ParseManifest(input);
  if (!manifest.ok()) {
    FUZZ_CHECK(!manifest.status().message().empty());
    return false;
  }
  int64_t bytes = 0;
  for (const FileEntry& file : manifest->files) {
    FUZZ_CHECK(file.name.find('/') == std::string::npos && file.name[0] != '.');
    bytes += file.bytes;
  }
  FUZZ_CHECK(bytes >= 0);
  const std::string text = FormatManifest(*manifest);
  const absl::StatusOr<Manifest> again = ParseManifest(text);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(FormatManifest(*again) == text);
  return true;
}

}  // namespace
}  // namespace fusionllm::checkpoint

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {checkpoint::Seeds, checkpoint::Words, checkpoint::Accepts}; }
