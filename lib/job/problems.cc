// Findings and the text forms of values: the part of document.h that does not need a YAML parser.
#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/yaml_scalar.h"
#include "lib/job/document.h"
#include "lib/job/scalar.h"

namespace fusionllm::job {
namespace {

constexpr size_t kMaxFindings = 20;
constexpr int kAfterAllLines = std::numeric_limits<int>::max() / 2;

}  // namespace

void Problems::Push(int order, absl::string_view path, std::string text) {
  ++count_;
  if (findings_.size() < kMaxFindings) findings_.push_back({order, std::string(path), std::move(text)});
}

bool Problems::Touches(absl::string_view path) const {
  const auto holds = [](absl::string_view outer, absl::string_view inner) {
    return absl::StartsWith(inner, outer) && (inner.size() == outer.size() || inner[outer.size()] == '.' || inner[outer.size()] == '[');
  };
  return absl::c_any_of(findings_, [&](const Finding& finding) { return holds(finding.path, path) || holds(path, finding.path); });
}

void Problems::Add(absl::string_view path, absl::string_view message) {
  const Node* node = root_;
  absl::string_view rest = path;
  while (node != nullptr && !rest.empty()) {
    const PathStep step = NextPathStep(rest);
    const Node* next = nullptr;
    if (step.index < 0) {
      next = node->Find(step.key);
    } else if (node->kind == Node::Kind::kList && static_cast<size_t>(step.index) < node->items.size()) {
      next = &node->items[step.index];
    }
    if (next == nullptr) break;
    node = next;
  }
  if (node == nullptr) {
    AddAtLine(1, path, message);
  } else {
    AddAtNode(*node, path, message);
  }
}

void Problems::AddAtNode(const Node& node, absl::string_view path, absl::string_view message) {
  if (node.override_index >= 0) {
    AddAtOverride(node.override_index, path, message);
  } else {
    AddAtLine(node.line, path, message);
  }
}

void Problems::AddAtLine(int line, absl::string_view path, absl::string_view message) {
  const std::string place = file_name_.empty() ? "" : absl::StrCat(file_name_, ":", line, ": ");
  Push(line, path, absl::StrCat(place, path, path.empty() ? "" : ": ", message));
}

void Problems::AddAtOverride(int index, absl::string_view path, absl::string_view message) {
  const std::string& set = override_paths_[index];
  const bool repeat = !path.empty() && path != set;
  Push(kAfterAllLines + index, path, absl::StrCat("--set ", set, ": ", repeat ? path : "", repeat ? ": " : "", message));
}

absl::Status Problems::ToStatus() const {
  if (findings_.empty()) return absl::OkStatus();
  std::vector<Finding> sorted = findings_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Finding& a, const Finding& b) { return a.order < b.order; });
  std::string text = absl::StrJoin(sorted, "\n", [](std::string* out, const Finding& finding) { absl::StrAppend(out, finding.text); });
  if (count_ > static_cast<int>(kMaxFindings))
    absl::StrAppend(&text, "\n", file_name_, file_name_.empty() ? "" : ": ", "and ", count_ - kMaxFindings, " more");
  return absl::InvalidArgumentError(text);
}

std::string JoinPath(absl::string_view path, absl::string_view key) {
  const bool plain = !key.empty() && key.size() <= 64 && absl::c_all_of(key, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '/';
  });
  Node text;
  text.kind = Node::Kind::kScalar;
  text.quoted = true;
  if (!plain) text.text = std::string(key);
  return absl::StrCat(path, path.empty() ? "" : ".", plain ? std::string(key) : Describe(text));
}

std::string JsonQuote(absl::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const size_t length = Utf8SequenceLength(text.substr(i));
    const absl::string_view character = text.substr(i, length);
    // What is invisible is shown by its number, which YAML reads back as the same.
    if (length > 1 && (UnprintableCharacter(character) != 0 || !FirstInvisible(character).text.empty())) {
      absl::StrAppend(&out, "\\u", absl::AsciiStrToLower(CharacterName(character).substr(2, 4)));
      i += length - 1;
      continue;
    }
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string ToJson(const Node& node) {
  std::string out;
  switch (node.kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kScalar: {
      if (node.quoted) return JsonQuote(node.text);
      const base::YamlScalar scalar = base::ResolveYamlScalar(node.text);
      if (scalar.type == base::YamlScalar::Type::kFloat) return NumberText(scalar.number);
      const bool text = scalar.type == base::YamlScalar::Type::kText || scalar.type == base::YamlScalar::Type::kNotFinite;
      return text ? JsonQuote(node.text) : scalar.text;
    }
    case Node::Kind::kList:
      return absl::StrCat("[", absl::StrJoin(node.items, ", ", [](std::string* o, const Node& n) { absl::StrAppend(o, ToJson(n)); }), "]");
    case Node::Kind::kMap:
      for (size_t i = 0; i < node.keys.size(); ++i) {
        absl::StrAppend(&out, i == 0 ? "" : ", ", JsonQuote(node.keys[i]), ": ", ToJson(node.items[i]));
      }
      return absl::StrCat("{", out, "}");
  }
  return out;
}

std::string Describe(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "nothing";
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a mapping";
    case Node::Kind::kScalar:
      break;
  }
  std::string text = node.text;
  if (text.size() > 40) {
    size_t cut = 40;  // never inside a UTF-8 sequence: the message must stay valid text
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
    text = text.substr(0, cut) + "...";
  }
  return !node.quoted && base::ResolveYamlScalar(node.text).type != base::YamlScalar::Type::kText ? text : JsonQuote(text);
}

}  // namespace fusionllm::job
