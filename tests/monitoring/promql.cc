#include "tests/monitoring/promql.h"

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace fusionllm::monitoring {
namespace {

bool IsNameStart(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_' || c == ':'; }
bool IsNamePart(char c) { return IsNameStart(c) || absl::ascii_isdigit(static_cast<unsigned char>(c)); }

class Reader {
 public:
  explicit Reader(absl::string_view text) : text_(text) {}

  std::vector<Selector> Read() {
    std::vector<Selector> found;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        SkipString();
      } else if (c == '[') {
        SkipTo(']');
      } else if (absl::ascii_isdigit(static_cast<unsigned char>(c))) {
        Take();  // a number or a duration
      } else if (IsNameStart(c)) {
        Name(found);
      } else {
        ++at_;
      }
    }
    return found;
  }

 private:
  char Next() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  std::string Take() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsNamePart(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  void SkipString() {
    const char quote = text_[at_++];
    while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
    ++at_;
  }
  // Past the next `end` outside of strings.
  void SkipTo(char end) {
    ++at_;
    while (at_ < text_.size() && text_[at_] != end) {
      if (text_[at_] == '"' || text_[at_] == '\'') {
        SkipString();
      } else {
        ++at_;
      }
    }
    ++at_;
  }

  void Name(std::vector<Selector>& found) {
    static const std::set<std::string> kOverLabels = {"by", "without", "on", "ignoring", "group_left", "group_right"};
    static const std::set<std::string> kOperators = {"and", "or", "unless", "offset", "bool", "atan2"};
    static const std::set<std::string> kAggregations = {"sum",    "min",  "max",     "avg",      "count",       "group",
                                                        "stddev", "topk", "bottomk", "quantile", "count_values"};
    const std::string name = Take();
    const char next = Next();
    if (kOverLabels.contains(name)) {
      if (next == '(') SkipTo(')');
      return;
    }
    if (next == '(' || kOperators.contains(name) || kAggregations.contains(name)) return;
    Selector selector{name, name};
    if (next == '{') {
      const size_t begin = at_;
      SkipTo('}');
      selector.text += std::string(text_.substr(begin, at_ - begin));
    }
    found.push_back(std::move(selector));
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<Selector> Selectors(absl::string_view expression) { return Reader(expression).Read(); }

std::string FamilyOf(const std::string& metric, const std::set<std::string>& families) {
  for (const char* suffix : {"_bucket", "_sum", "_count"}) {
    const absl::string_view family = absl::StripSuffix(metric, suffix);
    if (family.size() < metric.size() && families.contains(std::string(family))) return std::string(family);
  }
  return metric;
}

}  // namespace fusionllm::monitoring
