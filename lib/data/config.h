// What a dataset is made of: the fields of `spec.data` that the library needs, free of YAML.
//
// Plain values; the job library fills them. Fields that a kind does not use are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace fusionllm::data {

enum class DatasetKind : uint8_t { kText, kTokens, kCifar10, kIdx, kShapes };

// Whose samples are sequences of tokens.
constexpr bool IsOfTokens(DatasetKind kind) { return kind == DatasetKind::kText || kind == DatasetKind::kTokens; }

absl::string_view Name(DatasetKind kind);  // "text", "tokens", "cifar10", "idx", "shapes"

// Generated images; see shapes.h.
struct ShapesConfig {
  int64_t samples = 10000;   // 1 .. 2^31
  int64_t image_size = 32;   // pixels of a side, 8 .. 512
  int64_t num_classes = 10;  // 2 .. 10
  uint64_t seed = 1;
};

enum class TextEncoding : uint8_t { kUtf8, kBytes };  // what files of text must be; kBytes: anything
// Which files of a folder of images or tokens are meant, that holds those of both: split_files.h.
enum class DatasetSplit : uint8_t { kTraining, kTest };
enum class ValidationSplit : uint8_t { kEven, kEnd };  // which samples a fraction takes: split.h, or the last ones

struct DatasetConfig {
  DatasetKind kind = DatasetKind::kText;
  std::vector<std::string> paths;  // files or folders, in this order; each folder in sorted order
  DatasetSplit split = DatasetSplit::kTraining;
  std::string base_folder;  // what relative paths are relative to; empty: the working directory

  int64_t sequence_length = 0;  // text, tokens: tokens of a window, 1 .. 2^24
  int64_t vocabulary_size = 0;  // text, tokens: ids at or above it are an error; 0: not checked
  TextEncoding encoding = TextEncoding::kUtf8;
  std::string token_dtype;     // tokens: "uint16", "uint32", or empty: found out (tokens.h)
  int64_t num_classes = 0;     // images: labels at or above it are an error; 0: not checked
  int64_t image_channels = 0;  // idx: 3 repeats gray images to three channels; else as the files have
  ShapesConfig shapes;

  // At most one of the two. The fraction is of the samples; training then uses the rest.
  std::vector<std::string> validation_paths;
  double validation_fraction = 0;  // 0: none; else in (0, 1)
  ValidationSplit held_out = ValidationSplit::kEven;
};

}  // namespace fusionllm::data
