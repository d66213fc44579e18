#include "lib/kubeapi/tree.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace fusionllm::kubeapi {
namespace {

using job::Node;
using nlohmann::json;

class Converter {
 public:
  bool Convert(const json& value, int depth, Node& node) {
    if (depth > job::kMaxDocumentDepth || ++values_ > job::kMaxDocumentValues) return false;
    switch (value.type()) {
      case json::value_t::object:
        node.kind = Node::Kind::kMap;
        for (const auto& [key, item] : value.items()) {
          node.keys.push_back(key);
          if (!Convert(item, depth + 1, node.items.emplace_back())) return false;
        }
        return true;
      case json::value_t::array:
        node.kind = Node::Kind::kList;
        for (const json& item : value) {
          if (!Convert(item, depth + 1, node.items.emplace_back())) return false;
        }
        return true;
      case json::value_t::string:
        node.kind = Node::Kind::kScalar;
        node.quoted = true;
        node.text = value.get_ref<const std::string&>();
        return true;
      case json::value_t::boolean:
      case json::value_t::number_integer:
      case json::value_t::number_unsigned:
      case json::value_t::number_float:
        node.kind = Node::Kind::kScalar;
        node.text = value.dump();
        return true;
      default:  // null; binary and discarded values do not come out of JSON text
        return true;
    }
  }

 private:
  size_t values_ = 0;
};

}  // namespace

absl::StatusOr<Node> ToTree(const json& value) {
  Node root;
  if (Converter().Convert(value, 0, root)) return root;
  return absl::InvalidArgumentError(absl::StrCat("more than ", job::kMaxDocumentValues, " values or ", job::kMaxDocumentDepth, " levels"));
}

}  // namespace fusionllm::kubeapi
