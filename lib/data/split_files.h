// Folders of images and of token ids as they are published hold the files of training and those of testing side by side: which of them are
// meant.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/data/config.h"
#include "lib/data/files.h"

namespace fusionllm::data {

// The files of config.paths, as ExpandPaths has them, but of a folder that tells its splits apart only those of config.split. The name of a
// file tells by its words (letters and digits), else that of the folder below config.paths in which it lies:
//   training  begins with train (train-images-idx3-ubyte), or the name with data_batch
//   test      begins with test, or is t10k, val, valid or validation (t10k-images-idx3-ubyte, test_batch.bin)
// Kept for training are those of training, where there are none all but those of testing, and all where there is nothing else; for testing
// those of testing, and where there are none all, unless some are of training: that is refused, for they would be taken for the others.
// A file that is named by its path always counts.
// Blocks. Errors: those of ExpandPaths; InvalidArgument for a folder of which only the split that is not meant is there.
absl::StatusOr<std::vector<std::string>> FilesOfSplit(const DatasetConfig& config, const FileFilter& filter);

// Takes archives out of `paths` beside which lies what they hold, under the same name without .gz (also .bz2, .xz, .zst, .zip): downloaders
// leave both. A '-' and a '.' within the names count as the same. Returns what it took. Pure.
std::vector<std::string> TakeUnpackedArchives(std::vector<std::string>& paths);

}  // namespace fusionllm::data
