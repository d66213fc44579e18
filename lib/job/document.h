// A YAML document from outside as a tree of plain values, within limits, every value with the place it came from; and the list of all
// that is wrong with it.
//
// Limits: DocumentLimits after aliases are expanded, and 64 levels. Text must be UTF-8 without control characters. Anchors and
// aliases are followed, and merge keys (<<); tags other than !!str and further documents in the same text are refused, documents without
// a value passed over. What is read has the value that kubectl reads (testdata/yaml_values.txt); where the two would differ it is refused.
// Not thread-safe.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fusionllm::job {

inline constexpr size_t kMaxDocumentBytes = size_t{1} << 20;
inline constexpr size_t kMaxDocumentValues = 100'000;
inline constexpr int kMaxDocumentDepth = 64;

struct DocumentLimits {
  size_t bytes = kMaxDocumentBytes;
  size_t values = kMaxDocumentValues;  // about 150 bytes of memory each
};
// The 10,000 devices that a topology may have, at a hundred sites that are all joined, take 1.5 MiB and 180,000 values.
inline constexpr DocumentLimits kTopologyLimits = {.bytes = size_t{4} << 20, .values = 400'000};

struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  bool quoted = false;            // a scalar in quotes is text, whatever it looks like
  std::string text;               // of a scalar, as it is written; without quotes base/yaml_scalar.h says what it is
  int line = 1;                   // of a map's value: the line of its key
  int override_index = -1;        // >= 0: set by that --set instead of by the file
  std::vector<std::string> keys;  // of a map, parallel to items
  std::vector<Node> items;        // of a map or a list

  // The value of a key, or null when this is no map or has no such key.
  const Node* Find(absl::string_view key) const;
};

// Collects what is wrong with one document: at most 20 findings are kept, the rest counted.
class Problems {
 public:
  // An empty name: the document is no file's, and findings name no line.
  explicit Problems(absl::string_view file_name) : file_name_(file_name) {}

  // The document whose places Add() looks up; it must outlive this object's use.
  void SetRoot(const Node* root) { root_ = root; }
  // Names the --set overrides in order: "spec.training.steps".
  void SetOverridePaths(std::vector<std::string> paths) { override_paths_ = std::move(paths); }

  // path: "spec.strategy.pins[0].device"; the place is that of the deepest value that exists along it.
  void Add(absl::string_view path, absl::string_view message);
  void AddAtNode(const Node& node, absl::string_view path, absl::string_view message);
  void AddAtLine(int line, absl::string_view path, absl::string_view message);
  void AddAtOverride(int index, absl::string_view path, absl::string_view message);

  // Whether something was found at this path, above it or below it.
  bool Touches(absl::string_view path) const;
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }  // those that are not kept for length included
  // OK, or InvalidArgument with one finding a line in the order of the file: "job.yaml:12: spec.training.steps: must be at least 0, got
  // -3".
  absl::Status ToStatus() const;

 private:
  struct Finding {
    int order;  // line, or a number past all lines for an override
    std::string path;
    std::string text;
  };
  void Push(int order, absl::string_view path, std::string text);

  std::string file_name_;
  const Node* root_ = nullptr;
  std::vector<std::string> override_paths_;
  std::vector<Finding> findings_;
  int count_ = 0;
};

// Reads text into root. False when it cannot be used at all (not YAML, over a limit, empty); the reason is then in problems.
// Duplicate keys are reported and the first of them kept.
bool LoadDocument(absl::string_view text, Node& root, Problems& problems, const DocumentLimits& limits = {});

// Applies "spec.training.steps=50" to the tree: the value is YAML, missing maps on the way are made, "pins[0].device" reaches into lists
// that exist. Tells problems the paths; call it once.
void ApplyOverrides(std::span<const std::string> overrides, Node& root, Problems& problems);

// "spec" and "model": "spec.model". A key that is not plain is quoted and cut.
std::string JoinPath(absl::string_view path, absl::string_view key);
// The value as JSON text on one line: numbers, true, false and null stay what they are, everything else is a string.
std::string ToJson(const Node& node);
// A JSON string literal, quotes included; YAML reads it back as the same text.
std::string JsonQuote(absl::string_view text);
// Text for use in a message: quoted and cut at 40 characters.
std::string Describe(const Node& node);

}  // namespace fusionllm::job
