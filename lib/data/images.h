// Labelled images from files: CIFAR-10's binary version and MNIST-style idx pairs.
//
// A sample is f32 NHWC (one image [H, W, C]) with values (byte / 255 - mean) / std for each channel, and an i32 label.
// The constants are those of each training set, as commonly published:
//   cifar10  mean 0.4914 0.4822 0.4465, std 0.2470 0.2435 0.2616
//   idx      mean 0.1307, std 0.3081 (MNIST), for every channel
//   shapes   mean 0.5, std 0.25 (shapes.h)
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "lib/data/config.h"
#include "lib/data/dataset.h"

namespace fusionllm::data {

inline constexpr int64_t kMaxImageBytes = int64_t{1} << 24;
// Labels are checked whenever they are read, and so many of them when the dataset is opened: too few classes are an error before the first
// step, and opening stays quick. Those of an idx file lie side by side; CIFAR-10 itself has fewer.
inline constexpr int64_t kLabelsCheckedAtOpen = int64_t{64} << 20;
inline constexpr int64_t kCifarLabelsCheckedAtOpen = int64_t{1} << 16;

// The normalised value of each byte for one channel: a table makes the result the same everywhere it is used.
class PixelScale {
 public:
  PixelScale(double mean, double std);
  float operator[](uint8_t byte) const { return values_[byte]; }

 private:
  std::array<float, 256> values_;
};

// Records of 3073 bytes: a label below 10, then 32 x 32 red, green and blue planes. From a folder come its *.bin of
// config.split (split_files.h): data_batch*.bin, or test_batch.bin.
// Errors: InvalidArgument for an empty file, a size that is not a whole number of records, a label out of range (names file and byte).
absl::StatusOr<std::unique_ptr<Dataset>> OpenCifar10(const DatasetConfig& config);

// The same of any such files.
SampleType Cifar10SampleType();

// Pairs of idx files: u8 images [N, H, W] or [N, H, W, C] and u8 labels [N], distinguished by their magic numbers and paired in order. From
// a folder come its files with "idx" in their name, of config.split (split_files.h). Not gzipped: of an
// archive whose file lies beside it only the file is read. Gray images are
// repeated to three channels where config.image_channels is 3, as networks for colour images are commonly given them.
// Errors: InvalidArgument for a foreign magic number, sizes that disagree with the header, images without labels, pairs of different
// extents, a label out of range.
absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(const DatasetConfig& config);

}  // namespace fusionllm::data
