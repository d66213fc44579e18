// Visitor that fills structs from a document and reports everything that does not fit. For lib/job, and lib/kubeapi whose structs are
// described the same way.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/job/document.h"
#include "lib/job/field_hints.h"
#include "lib/job/scalar.h"
#include "lib/job/schema.h"

namespace fusionllm::job {

// Each returns the empty text and sets out, or returns what is wrong: "must be at least 0, got -3".
std::string ReadScalar(const Node& node, const Rule& rule, bool& out);
std::string ReadScalar(const Node& node, const Rule& rule, int64_t& out);
std::string ReadScalar(const Node& node, const Rule& rule, double& out);
std::string ReadScalar(const Node& node, const Rule& rule, std::string& out);
std::string ReadScalar(const Node& node, const Rule& rule, absl::Time& out);
std::string ReadScalar(const Node& node, const Rule& rule, Bandwidth& out);
std::string ReadScalar(const Node& node, const Rule& rule, ByteSize& out);
std::string ReadScalar(const Node& node, const Rule& rule, Duration& out);
// The index of the choice, or -1 with what is wrong.
int ReadChoice(const Node& node, const std::vector<std::string>& choices, std::string& wrong);

// The first value below it that is no number that JSON has, .inf say; null: none.
const Node* FirstNotFinite(const Node& node);

template <class E>
requires kIsEnum<E> std::string ReadScalar(const Node& node, const Rule& rule, E& out) {
  std::string wrong;
  const int index = ReadChoice(node, EnumChoices<E>(), wrong);
  if (index >= 0) out = EnumNames<E>::Names()[index].second;
  return wrong;
}

class Reader {
 public:
  static constexpr bool kFillsIn = true;  // defaults that depend on earlier fields are set on the way

  // kTolerated: what a newer program wrote is read without the fields that this one does not know.
  enum class UnknownKeys { kRefused, kTolerated };

  // hints: what unknown keys may have meant, besides their neighbours; it outlives this object. Null: the neighbours alone.
  Reader(const Node& root, Problems& problems, UnknownKeys unknown_keys = UnknownKeys::kRefused, const FieldHints* hints = nullptr)
      : map_(&root), problems_(problems), unknown_keys_(unknown_keys), hints_(hints) {}

  template <class T>
  void ReadObject(T& value) {
    Visit(*this, value);
    ReportUnknownKeys();
  }

  void Constant(absl::string_view name, absl::string_view expected);

  template <class T>
  void Field(absl::string_view name, T& value, const Rule& rule, absl::string_view doc) {
    known_.emplace_back(name);
    const Node* node = map_->Find(name);
    const std::string path = JoinPath(path_, name);
    if (node == nullptr) {
      if (rule.required) problems_.AddAtNode(*map_, path, "required");
    } else if (!rule.applies) {
      problems_.AddAtNode(*node, path, absl::StrCat("belongs to ", rule.belongs_to));
    } else {
      Read(*node, path, rule, value);
    }
  }

 private:
  template <class T>
  void Read(const Node& node, const std::string& path, const Rule& rule, T& value) {
    if constexpr (IsOptional<T>::value) {
      value.reset();
      if (node.kind == Node::Kind::kNull) return;
      // What could not be read is absent: a value made up here would break rules that the user did not.
      const size_t problems_before = problems_.size();
      Read(node, path, rule, value.emplace());
      if constexpr (kIsScalar<typename T::value_type>) {
        if (problems_.size() != problems_before) value.reset();
      }
    } else if constexpr (IsVector<T>::value) {
      ReadList(node, path, rule, value);
    } else if constexpr (std::is_same_v<T, RawExtension>) {
      if (const Node* const bad = FirstNotFinite(node); bad != nullptr) {
        problems_.AddAtNode(*bad, path, absl::StrCat(Describe(*bad), " is not a finite number; as text it needs quotes"));
      } else if (node.kind == Node::Kind::kMap) {
        value.json = ToJson(node);
      } else if (node.kind != Node::Kind::kNull) {
        problems_.AddAtNode(node, path, absl::StrCat("must be a mapping, got ", Describe(node)));
      }
    } else if constexpr (kIsScalar<T>) {
      std::string wrong = ReadScalar(node, rule, value);
      if (!wrong.empty() && hints_ != nullptr) wrong += hints_->ForValue(path, wrong);
      if (!wrong.empty()) problems_.AddAtNode(node, path, wrong);
    } else {
      Enter(node, path, value);
    }
  }

  template <class T>
  void Enter(const Node& node, const std::string& path, T& value) {
    // A section whose lines are all commented out reads as null: the same as an empty one.
    if (node.kind != Node::Kind::kMap && node.kind != Node::Kind::kNull) {
      problems_.AddAtNode(node, path, absl::StrCat("must be a mapping, got ", Describe(node)));
      return;
    }
    Reader inner(node, problems_, unknown_keys_, hints_);
    inner.path_ = path;
    inner.ReadObject(value);
  }

  template <class T>
  void ReadList(const Node& node, const std::string& path, const Rule& rule, std::vector<T>& values) {
    values.clear();
    if (node.kind == Node::Kind::kScalar && rule.one_or_many) {
      Read(node, path, rule, values.emplace_back());
      return;
    }
    if (node.kind == Node::Kind::kNull) return;
    if (node.kind != Node::Kind::kList) {
      problems_.AddAtNode(node, path, absl::StrCat("must be a list, got ", Describe(node)));
      return;
    }
    if (node.items.size() > rule.max_items) {
      problems_.AddAtNode(node, path, absl::StrCat("must have at most ", rule.max_items, " elements, got ", node.items.size()));
      return;
    }
    values.resize(node.items.size());
    for (size_t i = 0; i < values.size(); ++i) Read(node.items[i], absl::StrCat(path, "[", i, "]"), rule, values[i]);
  }

  void ReportUnknownKeys();

  const Node* map_;
  Problems& problems_;
  UnknownKeys unknown_keys_;
  const FieldHints* hints_;
  std::string path_;
  std::vector<std::string> known_;
};

}  // namespace fusionllm::job
