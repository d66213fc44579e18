// Visitor that writes structs as YAML: every field that holds, defaults included, absent optionals left out. For lib/job, and
// lib/kubeapi whose structs are described the same way.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/job/schema.h"

namespace fusionllm::job {

// Text that YAML reads back as the same text: plain where no reader could take it for anything else, else quoted.
std::string YamlText(absl::string_view text);

std::string ScalarText(bool value, const Rule& rule);
std::string ScalarText(int64_t value, const Rule& rule);
std::string ScalarText(double value, const Rule& rule);
std::string ScalarText(const std::string& value, const Rule& rule);
template <class T>
requires(kIsEnum<T> || kIsQuantity<T>) std::string ScalarText(T value, const Rule& rule) { return YamlText(ToString(value)); }

class Printer {
 public:
  static constexpr bool kFillsIn = false;

  template <class T>
  static std::string Print(T value) {
    Printer printer;
    Visit(printer, value);
    return std::move(printer.out_);
  }

  void Constant(absl::string_view name, absl::string_view value) { Line(name, value); }

  template <class T>
  void Field(absl::string_view name, T& value, const Rule& rule, absl::string_view doc) {
    if (!rule.applies) return;
    if constexpr (IsOptional<T>::value) {
      if (value) Field(name, *value, rule, doc);
    } else if constexpr (std::is_same_v<T, RawExtension>) {
      if (!value.json.empty()) Line(name, value.json);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value.empty()) Line(name, ScalarText(value, rule));  // no field accepts empty text: it stands for absence
    } else if constexpr (IsVector<T>::value) {
      List(name, value, rule);
    } else if constexpr (kIsScalar<T>) {
      Line(name, ScalarText(value, rule));
    } else {
      const size_t before = out_.size();
      Line(name, "");
      const size_t after = out_.size();
      Printer inner(indent_ + 2);
      Visit(inner, value);
      if (inner.out_.empty()) {
        out_.resize(before);
        Line(name, "{}");
      } else {
        out_.resize(after);
        out_ += inner.out_;
      }
    }
  }

 private:
  explicit Printer(int indent = 0) : indent_(indent) {}

  void Line(absl::string_view name, absl::string_view value) {
    absl::StrAppend(&out_, std::string(indent_, ' '), name, value.empty() ? ":" : ": ", value, "\n");
  }

  template <class T>
  void List(absl::string_view name, std::vector<T>& values, const Rule& rule) {
    if (values.empty()) return;
    if constexpr (kIsScalar<T>) {
      std::vector<std::string> texts;
      for (const T& value : values) texts.push_back(ScalarText(value, rule));
      Line(name, absl::StrCat("[", absl::StrJoin(texts, ", "), "]"));
    } else {
      Line(name, "");
      for (T& value : values) {
        Printer inner(indent_ + 2);
        Visit(inner, value);
        inner.out_[indent_] = '-';  // the first line of an element carries the dash in its indentation
        out_ += inner.out_;
      }
    }
  }

  int indent_;
  std::string out_;
};

}  // namespace fusionllm::job
