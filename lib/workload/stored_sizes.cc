#include "lib/workload/stored_sizes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::workload {
namespace {

constexpr absl::string_view kBlockPrefix = "transformer.h.";
constexpr char kPositions[] = "transformer.wpe.weight";

class Fields {
 public:
  void Add(absl::string_view field, const std::string& from, const std::string& to) {
    if (from != to) found_.push_back({absl::StrCat("spec.model.", field), from, to});
  }
  void Add(absl::string_view field, int64_t from, int64_t to) { Add(field, absl::StrCat(from), absl::StrCat(to)); }
  std::vector<job::FieldDifference> Take() { return std::move(found_); }

 private:
  std::vector<job::FieldDifference> found_;
};

// Of a tensor of so many dimensions.
std::optional<std::vector<int64_t>> ExtentsOf(const StoredEntries& stored, const char* name, size_t rank) {
  const auto found = stored.find(name);
  if (found == stored.end() || found->second == nullptr || found->second->shape.dims().size() != rank) return std::nullopt;
  return found->second->shape.dims();
}

// How many numbered modules follow `prefix`: the greatest number and one more.
int64_t CountBehind(const StoredEntries& stored, absl::string_view prefix) {
  int64_t count = 0;
  for (const auto& [name, entry] : stored) {
    if (!absl::StartsWith(name, prefix)) continue;
    int64_t number = 0;
    const std::string rest = name.substr(prefix.size());
    if (absl::SimpleAtoi(rest.substr(0, rest.find('.')), &number) && number < int64_t{1} << 32) count = std::max(count, number + 1);
  }
  return count;
}

std::vector<job::FieldDifference> OfGpt(const job::GptConfig& wanted, const StoredEntries& stored, bool head_unread, bool head_missing) {
  Fields fields;
  if (const int64_t blocks = CountBehind(stored, kBlockPrefix); blocks > 0) fields.Add("config.nLayer", blocks, wanted.n_layer);
  if (const auto tokens = ExtentsOf(stored, kGptEmbedding, 2)) {
    fields.Add("config.nEmbd", (*tokens)[1], wanted.n_embd);
    fields.Add("config.vocabSize", (*tokens)[0], wanted.vocab_size);
  }
  if (const auto positions = ExtentsOf(stored, kPositions, 2)) fields.Add("config.blockSize", (*positions)[0], wanted.block_size);
  if (head_unread) fields.Add("config.tieWeights", "false", "true");
  if (head_missing) fields.Add("config.tieWeights", "true", "false");
  return fields.Take();
}

// By its blocks; 0: of none that there is.
int64_t ResNetDepth(const StoredEntries& stored) {
  struct Depth {
    std::array<int64_t, 4> blocks;
    bool bottleneck;
    int64_t depth;
  };
  static constexpr std::array<Depth, 5> kDepths = {{{{2, 2, 2, 2}, false, 18},
                                                    {{3, 4, 6, 3}, false, 34},
                                                    {{3, 4, 6, 3}, true, 50},
                                                    {{3, 4, 23, 3}, true, 101},
                                                    {{3, 8, 36, 3}, true, 152}}};
  std::array<int64_t, 4> blocks = {};
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = CountBehind(stored, absl::StrCat("layer", i + 1, "."));
  const bool bottleneck = stored.contains("layer1.0.conv3.weight");
  for (const Depth& depth : kDepths) {
    if (depth.blocks == blocks && depth.bottleneck == bottleneck) return depth.depth;
  }
  return 0;
}

std::vector<job::FieldDifference> OfResNet(const job::ResNetConfig& wanted, const StoredEntries& stored) {
  Fields fields;
  if (const int64_t depth = ResNetDepth(stored); depth > 0) fields.Add("preset", depth, wanted.depth);
  if (const auto first = ExtentsOf(stored, "conv1.weight", 4)) {
    fields.Add("config.stem", first->back() == 7 ? "imagenet" : "cifar", wanted.stem == job::Stem::kImagenet ? "imagenet" : "cifar");
  }
  if (const auto head = ExtentsOf(stored, "fc.weight", 2)) fields.Add("config.numClasses", (*head)[0], wanted.num_classes);
  return fields.Take();
}

}  // namespace

std::vector<job::FieldDifference> SizeDifferences(const job::ResolvedModel& wanted, const StoredEntries& stored, bool head_unread,
                                                  bool head_missing) {
  if (const auto* gpt = std::get_if<job::GptConfig>(&wanted)) return OfGpt(*gpt, stored, head_unread, head_missing);
  if (const auto* resnet = std::get_if<job::ResNetConfig>(&wanted)) return OfResNet(*resnet, stored);
  return {};
}

}  // namespace fusionllm::workload
