#include "lib/opdag/attributes.h"

#include <charconv>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/opdag/graph.h"

namespace fusionllm::opdag {
namespace {

template <typename T>
const T* GetIf(const AttributeValue* value) {
  return value == nullptr ? nullptr : std::get_if<T>(value);
}

// The shortest text that parses back to the same double, with a mark that tells it from an integer.
std::string NumberText(double number) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), number);
  std::string text(buffer, end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string ValueText(absl::string_view name, const AttributeValue& value) {
  struct Printer {
    absl::string_view name;
    std::string operator()(int64_t v) const { return absl::StrCat(v); }
    std::string operator()(double v) const { return NumberText(v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(const std::string& v) const { return absl::StrCat("\"", absl::CHexEscape(v), "\""); }
    std::string operator()(const std::vector<int64_t>& v) const {
      const bool symbolic = name == "shape";
      return absl::StrCat("[",
                          absl::StrJoin(v, ", ",
                                        [symbolic](std::string* out, int64_t extent) {
                                          if (symbolic && extent == kBatch) {
                                            out->push_back('b');
                                          } else {
                                            absl::StrAppend(out, extent);
                                          }
                                        }),
                          "]");
    }
  };
  return std::visit(Printer{name}, value);
}

}  // namespace

const AttributeValue* Attributes::Find(absl::string_view name) const {
  const auto found = values_.find(std::string(name));
  return found == values_.end() ? nullptr : &found->second;
}

int64_t Attributes::Int(absl::string_view name, int64_t fallback) const {
  const int64_t* value = GetIf<int64_t>(Find(name));
  return value == nullptr ? fallback : *value;
}

double Attributes::Number(absl::string_view name, double fallback) const {
  const AttributeValue* value = Find(name);
  if (const double* number = GetIf<double>(value)) return *number;
  if (const int64_t* integer = GetIf<int64_t>(value)) return static_cast<double>(*integer);
  return fallback;
}

bool Attributes::Bool(absl::string_view name, bool fallback) const {
  const bool* value = GetIf<bool>(Find(name));
  return value == nullptr ? fallback : *value;
}

std::string Attributes::Text(absl::string_view name, absl::string_view fallback) const {
  const std::string* value = GetIf<std::string>(Find(name));
  return value == nullptr ? std::string(fallback) : *value;
}

std::vector<int64_t> Attributes::Ints(absl::string_view name) const {
  const std::vector<int64_t>* value = GetIf<std::vector<int64_t>>(Find(name));
  return value == nullptr ? std::vector<int64_t>() : *value;
}

std::string ToString(const Attributes& attributes) {
  return absl::StrJoin(attributes.values(), ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first, "=", ValueText(entry.first, entry.second));
  });
}

}  // namespace fusionllm::opdag
