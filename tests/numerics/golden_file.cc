#include "tests/numerics/golden_file.h"

#include <cstdlib>
#include <fstream>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"

namespace fusionllm::numerics {
namespace {

// "NAME DTYPE [2,3] : 1 2 3 4 5 6", the shape's brackets and all.
absl::StatusOr<std::pair<std::string, GoldenTensor>> ParseTensor(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> halves = absl::StrSplit(text, absl::MaxSplits(" : ", 1));
  const std::vector<absl::string_view> head = absl::StrSplit(halves.first, ' ');
  if (head.size() != 3) return absl::InvalidArgumentError("a tensor needs a name, a dtype and a shape");
  GoldenTensor result;
  FUSIONLLM_ASSIGN_OR_RETURN(result.type.dtype, tensor::ParseDType(head[1]));
  std::vector<int64_t> extents;
  for (const absl::string_view extent : absl::StrSplit(head[2], absl::ByAnyChar("[],"), absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(extent, &extents.emplace_back())) return absl::InvalidArgumentError("a broken shape");
  }
  result.type.shape = tensor::Shape(std::move(extents));
  for (const absl::string_view number : absl::StrSplit(halves.second, ' ', absl::SkipEmpty())) {
    if (!absl::SimpleAtod(number, &result.numbers.emplace_back())) return absl::InvalidArgumentError("a broken number");
  }
  if (static_cast<int64_t>(result.numbers.size()) != result.type.elements())
    return absl::InvalidArgumentError("too few or too many numbers");
  return std::make_pair(std::string(head[0]), std::move(result));
}

class Reader {
 public:
  absl::Status Line(const std::string& line) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    const auto& [word, rest] = parts;
    if (in_text_) {
      in_text_ = line != "endtext";
      if (in_text_) absl::StrAppend(&cases_.back().graph, line, "\n");
      return absl::OkStatus();
    }
    if (line.empty() || line[0] == '#') return absl::OkStatus();
    if (word == "case") {
      cases_.emplace_back().name = rest;
      return absl::OkStatus();
    }
    if (cases_.empty()) return absl::InvalidArgumentError("stands before the first case");
    if (word == "end") return absl::OkStatus();
    if (word == "text") {
      in_text_ = true;
      return absl::OkStatus();
    }
    if (word == "tolerance") {
      return absl::SimpleAtod(rest, &cases_.back().tolerance) ? absl::OkStatus() : absl::InvalidArgumentError("a broken tolerance");
    }
    if (word == "option") {
      const std::pair<std::string, std::string> option = absl::StrSplit(rest, ' ');
      cases_.back().options.insert(option);
      return absl::OkStatus();
    }
    static const std::set<std::string> kKinds = {"feed", "param", "value", "grad", "state", "digest"};
    if (!kKinds.contains(word)) return absl::InvalidArgumentError(absl::StrCat("begins with the unknown word '", word, "'"));
    FUSIONLLM_ASSIGN_OR_RETURN(auto tensor, ParseTensor(rest));
    cases_.back().tensors[word].insert(std::move(tensor));
    return absl::OkStatus();
  }

  std::vector<GoldenCase> Take() { return std::move(cases_); }

 private:
  std::vector<GoldenCase> cases_;
  bool in_text_ = false;
};

}  // namespace

absl::StatusOr<std::vector<GoldenCase>> ReadGoldens(absl::string_view path) {
  const char* root = std::getenv("FUSIONLLM_SOURCE_DIR");
  const std::string full = absl::StrCat(root == nullptr ? "." : root, "/", path);
  std::ifstream file(full);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", full, " (is FUSIONLLM_SOURCE_DIR set?)"));
  Reader reader;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const absl::Status status = reader.Line(line);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", status.message()));
  }
  return reader.Take();
}

std::vector<std::string> OpGoldenPaths() {
  std::vector<std::string> paths;
  for (const char* family : {"convolution", "elementwise", "linear", "movement", "normalization", "pooling"}) {
    paths.push_back(absl::StrCat("tests/numerics/golden/", family, ".golden"));
  }
  return paths;
}

void CopyNumbers(const GoldenTensor& from, const tensor::TensorView& to) {
  for (size_t i = 0; i < from.numbers.size(); ++i) {
    switch (to.type.dtype) {
      case tensor::DType::kI32:
        to.as<int32_t>()[i] = static_cast<int32_t>(from.numbers[i]);
        break;
      case tensor::DType::kI64:
        to.as<int64_t>()[i] = static_cast<int64_t>(from.numbers[i]);
        break;
      default:
        to.f32()[i] = static_cast<float>(from.numbers[i]);
    }
  }
}

}  // namespace fusionllm::numerics
