#include "lib/job/reader.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "lib/base/nearest_name.h"
#include "lib/base/yaml_scalar.h"
#include "lib/job/name.h"

namespace fusionllm::job {
namespace {

using base::YamlScalar;
using Type = base::YamlScalar::Type;

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

std::string Got(const Node& node) { return absl::StrCat(", got ", Describe(node)); }

// A null Node is an absent value, so both read the same: `steps:` with nothing behind it is a slip that deserves a word.
bool IsPlain(const Node& node) { return node.kind == Node::Kind::kScalar && !node.quoted; }

// What it is where it is no text.
YamlScalar ResolveNode(const Node& node) { return IsPlain(node) ? base::ResolveYamlScalar(node.text) : YamlScalar{Type::kText, node.text}; }

// As an API server counts for maxLength: code points of UTF-8, which are the bytes that do not continue one.
size_t CharacterCount(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

// 1e-400 would become 0, which means something else. `text` is a number that came out as 0.
bool IsTooSmall(absl::string_view text) {
  return text.substr(0, text.find_first_of("eE")).find_first_of("123456789") != absl::string_view::npos;
}

std::string CheckBounds(double value, const Rule& rule, const std::string& got) {
  if (value < rule.min && rule.min == 0 && rule.zero_is_auto) return absl::StrCat("must be auto (0) or at least 1", got);
  if (value < rule.min) return absl::StrCat("must be ", rule.above_min ? "above " : "at least ", NumberText(rule.min), got);
  if (rule.above_min && value == rule.min) return absl::StrCat("must be above ", NumberText(rule.min), got);
  if (value > rule.max) return absl::StrCat("must be ", rule.below_max ? "below " : "at most ", NumberText(rule.max), got);
  if (rule.below_max && value == rule.max) return absl::StrCat("must be below ", NumberText(rule.max), got);
  return "";
}

bool IsNumber(const YamlScalar& scalar) { return scalar.type == Type::kInteger || scalar.type == Type::kFloat; }

// Empty: the node is text. What is none without quotes is refused, for the API server refuses it too.
std::string WhyNoText(const Node& node) {
  if (node.quoted) return "";
  const YamlScalar scalar = base::ResolveYamlScalar(node.text);
  if (scalar.type == Type::kText) return "";
  return absl::StrCat("must be text, got ", Describe(node), ", which without quotes is ",
                      scalar.type == Type::kBool ? "true or false" : "a number", " in YAML: write ", JsonQuote(node.text));
}

// A number without a unit counts as its digits.
template <class T>
std::string ReadQuantity(const Node& node, absl::StatusOr<T> (*parse)(absl::string_view), absl::string_view what, T& out) {
  if (node.kind != Node::Kind::kScalar) return absl::StrCat("must be a ", what, Got(node));
  const YamlScalar scalar = node.quoted ? YamlScalar{Type::kText, node.text} : base::ResolveYamlScalar(node.text);
  absl::StatusOr<T> value = parse(scalar.type == Type::kFloat ? NumberText(scalar.number) : scalar.text);
  if (!value.ok()) return std::string(value.status().message());
  out = *value;
  return "";
}

}  // namespace

std::string ReadScalar(const Node& node, const Rule& rule, bool& out) {
  const YamlScalar scalar = ResolveNode(node);
  if (scalar.type != Type::kBool) return absl::StrCat("must be true or false", Got(node));
  out = scalar.text == "true";
  return "";
}

std::string ReadScalar(const Node& node, const Rule& rule, int64_t& out) {
  if (rule.zero_is_auto && node.kind == Node::Kind::kScalar && node.text == "auto") {
    out = 0;
    return "";
  }
  const absl::string_view expected = rule.zero_is_auto ? "must be a whole number or auto" : "must be a whole number";
  const YamlScalar scalar = ResolveNode(node);
  if (!IsNumber(scalar) || scalar.number != std::floor(scalar.number)) return absl::StrCat(expected, Got(node));
  if (scalar.number == 0 && IsTooSmall(node.text)) return absl::StrCat(expected, Got(node));
  std::string wrong = CheckBounds(scalar.number, rule, Got(node));
  if (!wrong.empty()) return wrong;
  if (std::abs(scalar.number) >= kExactIntegers) return absl::StrCat("is too large", Got(node));  // all bounds are below it
  out = static_cast<int64_t>(scalar.number);
  return "";
}

std::string ReadScalar(const Node& node, const Rule& rule, double& out) {
  const YamlScalar scalar = ResolveNode(node);
  if (!IsNumber(scalar)) {
    const std::string lower = IsPlain(node) ? absl::AsciiStrToLower(node.text) : "";
    const bool not_finite =
        base::IsDecimalNumber(lower) || lower.find("inf") != std::string::npos || lower.find("nan") != std::string::npos;
    return absl::StrCat(not_finite ? "must be a finite number" : "must be a number", Got(node));
  }
  if (scalar.number == 0 && IsTooSmall(node.text)) return absl::StrCat("must be 0 or a number that differs from 0", Got(node));
  std::string wrong = CheckBounds(scalar.number, rule, Got(node));
  if (wrong.empty()) out = scalar.number == 0 ? 0 : scalar.number;  // -0 becomes 0
  return wrong;
}

std::string ReadScalar(const Node& node, const Rule& rule, std::string& out) {
  if (node.kind != Node::Kind::kScalar) return absl::StrCat("must be text", Got(node));
  if (rule.number_or_text && IsNumber(ResolveNode(node))) {
    const YamlScalar scalar = ResolveNode(node);
    out = scalar.type == Type::kInteger ? scalar.text : NumberText(scalar.number);
    return "";
  }
  if (std::string wrong = WhyNoText(node); !wrong.empty()) return wrong;
  if (node.text.empty() && !rule.may_be_empty) return "must not be empty";
  if (const size_t length = CharacterCount(node.text); length > rule.max_length) {
    return absl::StrCat("must have at most ", rule.max_length, " characters, got ", length);
  }
  if (rule.name) {
    if (!IsName(node.text)) return absl::StrCat("must be ", kNameRule, Got(node));
  } else if (node.text.find('\0') != std::string::npos) {
    return "must not contain a zero byte";
  }
  out = node.text;
  return "";
}

std::string ReadScalar(const Node& node, const Rule& rule, absl::Time& out) {
  std::string error;
  if (node.kind != Node::Kind::kScalar || !absl::ParseTime(absl::RFC3339_full, node.text, &out, &error)) {
    return absl::StrCat("must be a time such as 2026-01-31T12:00:00Z", Got(node));
  }
  return "";
}

std::string ReadScalar(const Node& node, const Rule& rule, Bandwidth& out) { return ReadQuantity(node, &ParseBandwidth, "bandwidth", out); }
std::string ReadScalar(const Node& node, const Rule& rule, ByteSize& out) { return ReadQuantity(node, &ParseByteSize, "size", out); }
std::string ReadScalar(const Node& node, const Rule& rule, Duration& out) { return ReadQuantity(node, &ParseDuration, "duration", out); }

int ReadChoice(const Node& node, const std::vector<std::string>& choices, std::string& wrong) {
  if (node.kind == Node::Kind::kScalar) {
    const auto found = std::find(choices.begin(), choices.end(), node.text);
    if (found != choices.end()) return static_cast<int>(found - choices.begin());
  }
  wrong = absl::StrCat("must be one of ", absl::StrJoin(choices, ", "), Got(node));
  const std::string near = node.kind == Node::Kind::kScalar ? base::NearestName(node.text, choices) : "";
  if (!near.empty()) absl::StrAppend(&wrong, "; did you mean ", near, "?");
  return -1;
}

const Node* FirstNotFinite(const Node& node) {
  if (IsPlain(node) && base::ResolveYamlScalar(node.text).type == Type::kNotFinite) return &node;
  for (const Node& item : node.items) {
    if (const Node* const found = FirstNotFinite(item); found != nullptr) return found;
  }
  return nullptr;
}

void Reader::Constant(absl::string_view name, absl::string_view expected) {
  known_.emplace_back(name);
  const Node* node = map_->Find(name);
  if (node == nullptr) {
    problems_.AddAtNode(*map_, JoinPath(path_, name), absl::StrCat("required: ", expected));
  } else if (node->kind != Node::Kind::kScalar || node->text != expected) {
    problems_.AddAtNode(*node, JoinPath(path_, name), absl::StrCat("must be ", expected, Got(*node)));
  }
}

void Reader::ReportUnknownKeys() {
  if (unknown_keys_ == UnknownKeys::kTolerated) return;
  for (size_t i = 0; i < map_->keys.size(); ++i) {
    const std::string& key = map_->keys[i];
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    std::string hint;
    if (hints_ != nullptr) {
      hint = hints_->For(path_, key, known_);
    } else if (const std::string near = base::NearestName(key, known_); !near.empty()) {
      hint = absl::StrCat("did you mean ", near, "?");
    }
    problems_.AddAtNode(map_->items[i], JoinPath(path_, key), absl::StrCat("unknown field", hint.empty() ? "" : "; ", hint));
  }
}

}  // namespace fusionllm::job
