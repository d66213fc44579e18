#include "lib/job/differences.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/truncate_utf8.h"
#include "lib/job/document.h"
#include "lib/job/model_config.h"
#include "lib/job/parse.h"

namespace fusionllm::job {
namespace {

constexpr size_t kMaxValueBytes = 80;
constexpr absl::string_view kModel = "spec.model.", kInit = "spec.model.init", kGraph = "spec.model.graph";

// Sizes in place of the preset they come from.
FusionJob WithSizes(FusionJob job) {
  absl::StatusOr<ResolvedModel> resolved = ResolveModel(job.spec);
  if (!resolved.ok() || resolved->family == nullptr) return job;
  job.spec.model.preset = std::move(resolved->sizes.preset);
  job.spec.model.config = std::move(resolved->sizes.settings);
  return job;
}

// Of a list the elements stand in no map.
std::string TextOf(const Node* node) {
  if (node == nullptr || node->kind == Node::Kind::kNull) return "none";
  if (node->kind == Node::Kind::kScalar) return base::TruncateUtf8(node->text.empty() ? "\"\"" : node->text, kMaxValueBytes);
  return base::TruncateUtf8(ToJson(*node), kMaxValueBytes);
}

bool AreMappings(const Node& list) {
  return std::all_of(list.items.begin(), list.items.end(), [](const Node& item) { return item.kind == Node::Kind::kMap; });
}

class Comparison {
 public:
  // Either may be null: absent.
  void Compare(const std::string& path, const Node* from, const Node* to) {
    const auto is = [](const Node* node, Node::Kind kind) { return node != nullptr && node->kind == kind; };
    const bool maps = is(from, Node::Kind::kMap) || is(to, Node::Kind::kMap);
    const bool others =
        is(from, Node::Kind::kScalar) || is(to, Node::Kind::kScalar) || is(from, Node::Kind::kList) || is(to, Node::Kind::kList);
    const Node* const only = from == nullptr ? to : to == nullptr ? from : nullptr;  // {} beside nothing is no difference of its fields
    if (maps && !others && !(only != nullptr && only->keys.empty())) {
      CompareMaps(path, from, to);
    } else if (is(from, Node::Kind::kList) && is(to, Node::Kind::kList) && from->items.size() == to->items.size() && AreMappings(*from) &&
               AreMappings(*to)) {
      for (size_t i = 0; i < from->items.size(); ++i) Compare(absl::StrCat(path, "[", i, "]"), &from->items[i], &to->items[i]);
    } else if ((from == nullptr) != (to == nullptr) || (from != nullptr && ToJson(*from) != ToJson(*to))) {
      found_.push_back({path, TextOf(from), TextOf(to)});
    }
  }

  std::vector<FieldDifference> Take() { return std::move(found_); }

 private:
  void CompareMaps(const std::string& path, const Node* from, const Node* to) {
    const auto compare = [&](const std::string& key) {
      Compare(JoinPath(path, key), from == nullptr ? nullptr : from->Find(key), to == nullptr ? nullptr : to->Find(key));
    };
    if (to != nullptr) {
      for (const std::string& key : to->keys) compare(key);
    }
    if (from == nullptr) return;
    for (const std::string& key : from->keys) {
      if (to == nullptr || to->Find(key) == nullptr) compare(key);
    }
  }

  std::vector<FieldDifference> found_;
};

std::optional<Node> TreeOf(const FusionJob& job) {
  Problems problems("");
  Node root;
  if (!LoadDocument(ToYaml(job), root, problems)) return std::nullopt;
  return root;
}

}  // namespace

std::vector<FieldDifference> Differences(const FusionJob& from, const FusionJob& to) {
  const std::optional<Node> before = TreeOf(WithSizes(from)), after = TreeOf(WithSizes(to));
  if (!before || !after) return {};
  Comparison comparison;
  comparison.Compare("", &*before, &*after);
  return comparison.Take();
}

std::vector<FieldDifference> ArchitectureDifferences(const std::vector<FieldDifference>& differences) {
  std::vector<FieldDifference> found;
  for (const FieldDifference& difference : differences) {
    const bool other = absl::StartsWith(difference.path, kInit) || absl::StartsWith(difference.path, kGraph);
    if (absl::StartsWith(difference.path, kModel) && !other) found.push_back(difference);
  }
  return found;
}

std::string ToString(const std::vector<FieldDifference>& differences, size_t max) {
  std::vector<std::string> texts;
  for (const FieldDifference& difference : differences) {
    if (texts.size() == max) break;
    texts.push_back(absl::StrCat(difference.path, " ", difference.from, " -> ", difference.to));
  }
  const size_t left = differences.size() - texts.size();
  return absl::StrCat(absl::StrJoin(texts, ", "), left == 0 ? "" : absl::StrCat(" and ", left, " more"));
}

}  // namespace fusionllm::job
