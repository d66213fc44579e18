#include "lib/data/images.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/file_format.h"
#include "lib/base/status_macros.h"
#include "lib/data/files.h"
#include "lib/data/split_files.h"

namespace fusionllm::data {
namespace {

constexpr int64_t kCifarSide = 32;
constexpr int64_t kCifarPlane = kCifarSide * kCifarSide;
constexpr int64_t kCifarRecord = 1 + 3 * kCifarPlane;
constexpr int64_t kCifarClasses = 10;

absl::Status CheckLabel(int64_t label, int64_t limit, int64_t offset, const std::string& path) {
  if (label < limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("label ", label, " at byte ", offset, " of ", path, " is outside the ", limit, " classes"));
}

// Which file a sample lies in, when file i starts at starts[i].
size_t FileOf(const std::vector<int64_t>& starts, int64_t index) {
  return static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), index) - starts.begin()) - 1;
}

class Cifar10 : public Dataset {
 public:
  Cifar10(int64_t samples, int64_t label_limit, std::vector<base::SourceFile> files, std::vector<int64_t> starts, FilesRead read)
      : Dataset(samples, Cifar10SampleType(), std::move(read)),
        label_limit_(label_limit),
        files_(std::move(files)),
        starts_(std::move(starts)),
        scale_{PixelScale(0.4914, 0.2470), PixelScale(0.4822, 0.2435), PixelScale(0.4465, 0.2616)} {}

  // Those of the first samples.
  absl::Status CheckLabels() const {
    for (int64_t i = 0; i < std::min(size(), kCifarLabelsCheckedAtOpen); ++i) FUSIONLLM_RETURN_IF_ERROR(FillSample(i, nullptr, nullptr));
    return absl::OkStatus();
  }

 protected:
  absl::Status FillSample(int64_t index, void* input, void* target) const override {
    const size_t file = FileOf(starts_, index);
    const int64_t offset = (index - starts_[file]) * kCifarRecord;
    std::array<uint8_t, kCifarRecord> record;
    const std::span<uint8_t> wanted(record.data(), input == nullptr ? 1 : record.size());
    FUSIONLLM_RETURN_IF_ERROR(files_[file].ReadAt(offset, std::as_writable_bytes(wanted)));
    FUSIONLLM_RETURN_IF_ERROR(CheckLabel(record[0], label_limit_, offset, files_[file].path()));
    if (target != nullptr) *static_cast<int32_t*>(target) = record[0];
    if (auto* pixel = static_cast<float*>(input); pixel != nullptr) {
      for (size_t i = 0; i < kCifarPlane; ++i) {
        for (size_t channel = 0; channel < 3; ++channel) *pixel++ = scale_[channel][record[1 + channel * kCifarPlane + i]];
      }
    }
    return absl::OkStatus();
  }

 private:
  int64_t label_limit_;
  std::vector<base::SourceFile> files_;
  std::vector<int64_t> starts_;  // of each file, in samples
  std::array<PixelScale, 3> scale_;
};

// "; it is a zip archive: unpack it" of what is no data of images; empty: of no format that is known.
absl::StatusOr<std::string> OtherFormat(const base::SourceFile& file) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::FileFormat* const format, base::FormatOf(file));
  if (format == nullptr) return "";
  return absl::StrCat("; it is ", format->name, format->remedy.empty() ? "" : ": ", format->remedy);
}

// One idx file whose header has been checked against its size.
struct IdxFile {
  base::SourceFile file;
  int64_t header_bytes = 0;
  std::vector<int64_t> extents;  // rank 1: labels; 3 or 4: images
};

absl::StatusOr<IdxFile> OpenIdxFile(const std::string& path, bool keep_open) {
  FUSIONLLM_ASSIGN_OR_RETURN(base::SourceFile file, base::SourceFile::Open(path, keep_open));
  std::array<uint8_t, 4> magic = {};
  if (file.size() < 4) return absl::InvalidArgumentError(absl::StrCat(path, " has ", file.size(), " bytes, too few for an idx header"));
  FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(magic))));
  const int rank = magic[3];
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != 0x08 || (rank != 1 && rank != 3 && rank != 4)) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string other, OtherFormat(file));
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not an idx file of u8 labels [N] or images [N, H, W] or [N, H, W, C]", other));
  }
  IdxFile result{std::move(file), 4 + 4 * rank, {}};
  std::vector<uint8_t> sizes(static_cast<size_t>(4 * rank));
  if (result.file.size() < result.header_bytes) return absl::InvalidArgumentError(absl::StrCat(path, " ends inside its idx header"));
  FUSIONLLM_RETURN_IF_ERROR(result.file.ReadAt(4, std::as_writable_bytes(std::span(sizes))));
  int64_t item_bytes = 1;
  for (size_t i = 0; i < static_cast<size_t>(rank); ++i) {
    const int64_t extent =
        int64_t{sizes[4 * i]} << 24 | int64_t{sizes[4 * i + 1]} << 16 | int64_t{sizes[4 * i + 2]} << 8 | sizes[4 * i + 3];
    result.extents.push_back(extent);
    if (i == 0) continue;
    if (extent < 1 || extent > kMaxImageBytes / item_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(path, " claims images of an extent of ", extent, ", which is out of range"));
    }
    item_bytes *= extent;
  }
  const int64_t wanted = result.header_bytes + result.extents[0] * item_bytes;  // < 2^32 * 2^24
  if (result.file.size() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has ", result.file.size(), " bytes but its idx header asks for ", wanted,
        result.file.size() < wanted ? ": is it cut off?" : absl::StrCat(": ", result.file.size() - wanted, " bytes are too many")));
  }
  return result;
}

// "train-images-idx3-ubyte" without what numbers the files of one set.
std::string SetNameOf(absl::string_view file_name) {
  std::string name;
  std::copy_if(file_name.begin(), file_name.end(), std::back_inserter(name), [](char c) { return absl::ascii_isalpha(c); });
  return name;
}

// A folder such as torchvision's may hold several sets, whose labels mean different things: MNIST/raw beside FashionMNIST/raw, or the
// splits of EMNIST side by side. Files that are named by their paths are taken as they are.
absl::Status CheckOneSet(const DatasetConfig& config, const std::vector<IdxFile>& images) {
  for (const std::string& named : config.paths) {
    const std::filesystem::path folder = std::filesystem::path(config.base_folder) / named;
    std::error_code none;
    if (!std::filesystem::is_directory(folder, none)) continue;
    std::map<std::string, std::string> by_file_name;  // where each was seen first
    std::optional<std::string> first;
    for (const IdxFile& image : images) {
      const std::filesystem::path path = image.file.path();
      const std::filesystem::path below = path.lexically_normal().lexically_relative(folder.lexically_normal());
      if (below.empty() || *below.begin() == "..") continue;
      const std::string name = path.filename().string();
      const auto [same_name, is_new] = by_file_name.emplace(name, path.string());
      const std::string* other = is_new ? nullptr : &same_name->second;
      if (!first.has_value()) first = path.string();
      if (SetNameOf(std::filesystem::path(*first).filename().string()) != SetNameOf(name)) other = &*first;
      if (other == nullptr) continue;
      return absl::InvalidArgumentError(absl::StrCat(folder.string(), " holds several sets of images, ", *other, " and ", path.string(),
                                                     ", whose labels may mean different things: name the folder of one, or the files"));
    }
  }
  return absl::OkStatus();
}

class IdxImages : public Dataset {
 public:
  IdxImages(int64_t samples, tensor::Shape shape, int64_t repeats, int64_t label_limit, std::vector<IdxFile> images,
            std::vector<IdxFile> labels, std::vector<int64_t> starts, FilesRead read)
      : Dataset(samples, {{tensor::DType::kF32, std::move(shape)}, {tensor::DType::kI32, {}}}, std::move(read)),
        repeats_(repeats),
        label_limit_(label_limit),
        images_(std::move(images)),
        labels_(std::move(labels)),
        starts_(std::move(starts)),
        scale_(0.1307, 0.3081) {}

  absl::Status CheckLabels() const {
    int64_t left = kLabelsCheckedAtOpen;
    for (const IdxFile& labels : labels_) {
      for (int64_t at = labels.header_bytes; at < labels.file.size() && left > 0;) {
        std::vector<uint8_t> chunk(static_cast<size_t>(std::min({int64_t{1} << 20, labels.file.size() - at, left})));
        FUSIONLLM_RETURN_IF_ERROR(labels.file.ReadAt(at, std::as_writable_bytes(std::span(chunk))));
        for (const uint8_t label : chunk) FUSIONLLM_RETURN_IF_ERROR(CheckLabel(label, label_limit_, at++, labels.file.path()));
        left -= static_cast<int64_t>(chunk.size());
      }
    }
    return absl::OkStatus();
  }

 protected:
  absl::Status FillSample(int64_t index, void* input, void* target) const override {
    const size_t file = FileOf(starts_, index);
    const int64_t item = index - starts_[file];
    if (target != nullptr) {
      uint8_t label = 0;
      const int64_t offset = labels_[file].header_bytes + item;
      FUSIONLLM_RETURN_IF_ERROR(labels_[file].file.ReadAt(offset, std::as_writable_bytes(std::span(&label, 1))));
      FUSIONLLM_RETURN_IF_ERROR(CheckLabel(label, label_limit_, offset, labels_[file].file.path()));
      *static_cast<int32_t*>(target) = label;
    }
    if (input != nullptr) {
      std::vector<uint8_t> bytes(static_cast<size_t>(sample_type().input.elements() / repeats_));
      const int64_t offset = images_[file].header_bytes + item * static_cast<int64_t>(bytes.size());
      FUSIONLLM_RETURN_IF_ERROR(images_[file].file.ReadAt(offset, std::as_writable_bytes(std::span(bytes))));
      auto* value = static_cast<float*>(input);
      for (const uint8_t byte : bytes) value = std::fill_n(value, repeats_, scale_[byte]);
    }
    return absl::OkStatus();
  }

 private:
  int64_t repeats_;  // values of a sample for each byte
  int64_t label_limit_;
  std::vector<IdxFile> images_;
  std::vector<IdxFile> labels_;
  std::vector<int64_t> starts_;  // of each pair, in samples
  PixelScale scale_;
};

}  // namespace

PixelScale::PixelScale(double mean, double std) {
  for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>((static_cast<double>(i) / 255.0 - mean) / std);
}

SampleType Cifar10SampleType() { return {{tensor::DType::kF32, {kCifarSide, kCifarSide, 3}}, {tensor::DType::kI32, {}}}; }

absl::StatusOr<std::unique_ptr<Dataset>> OpenCifar10(const DatasetConfig& config) {
  const FileFilter filter = {[](absl::string_view name) { return absl::EndsWith(name, ".bin"); },
                             "file of CIFAR-10's binary version (*.bin)"};
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> paths, FilesOfSplit(config, filter));
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<base::SourceFile> files, OpenFiles(paths));
  std::vector<int64_t> starts;
  FilesRead read;
  int64_t samples = 0;
  for (const base::SourceFile& file : files) {
    if (file.size() == 0 || file.size() % kCifarRecord != 0) {
      FUSIONLLM_ASSIGN_OR_RETURN(const std::string other, OtherFormat(file));
      return absl::InvalidArgumentError(absl::StrCat(file.path(), " has ", file.size(),
                                                     " bytes, which is not a whole number of CIFAR-10 records of ", kCifarRecord,
                                                     " bytes: is it cut off, or not the binary version?", other));
    }
    starts.push_back(samples);
    samples += file.size() / kCifarRecord;
    read.Add(file);
  }
  const int64_t limit = config.num_classes > 0 ? std::min(config.num_classes, kCifarClasses) : kCifarClasses;
  auto dataset = std::make_unique<Cifar10>(samples, limit, std::move(files), std::move(starts), std::move(read));
  FUSIONLLM_RETURN_IF_ERROR(dataset->CheckLabels());
  return dataset;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(const DatasetConfig& config) {
  const FileFilter filter = {[](absl::string_view name) { return absl::StrContains(name, "idx"); }, "file in MNIST's idx format (*idx*)"};
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<std::string> paths, FilesOfSplit(config, filter));
  std::vector<IdxFile> images, labels;
  FilesRead read;
  for (std::string& archive : TakeUnpackedArchives(paths)) read.Skip(std::move(archive), "it lies there unpacked as well");
  for (const std::string& path : paths) {
    FUSIONLLM_ASSIGN_OR_RETURN(IdxFile file, OpenIdxFile(path, paths.size() <= 128));
    read.Add(file.file);
    std::vector<IdxFile>& list = file.extents.size() == 1 ? labels : images;
    list.push_back(std::move(file));
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckOneSet(config, images));
  if (images.size() != labels.size()) {
    return absl::InvalidArgumentError(absl::StrCat("idx data needs as many label files as image files, but there are ", images.size(),
                                                   " of images and ", labels.size(), " of labels (first file ", paths[0], ")"));
  }
  std::vector<int64_t> starts;
  int64_t samples = 0;
  std::vector<int64_t> extents = images[0].extents;
  extents.erase(extents.begin());
  for (size_t i = 0; i < images.size(); ++i) {
    if (images[i].extents[0] != labels[i].extents[0]) {
      return absl::InvalidArgumentError(absl::StrCat(images[i].file.path(), " has ", images[i].extents[0], " images but ",
                                                     labels[i].file.path(), " has ", labels[i].extents[0], " labels"));
    }
    if (!std::equal(extents.begin(), extents.end(), images[i].extents.begin() + 1, images[i].extents.end())) {
      return absl::InvalidArgumentError(
          absl::StrCat(images[i].file.path(), " and ", images[0].file.path(), " have images of different extents"));
    }
    starts.push_back(samples);
    samples += images[i].extents[0];
  }
  if (samples == 0) return absl::InvalidArgumentError(absl::StrCat(images[0].file.path(), " has no images"));
  if (extents.size() == 2) extents.push_back(1);
  const int64_t repeats = extents.back() == 1 && config.image_channels == 3 ? 3 : 1;
  extents.back() *= repeats;
  const int64_t limit = config.num_classes > 0 ? config.num_classes : 256;
  auto dataset = std::make_unique<IdxImages>(samples, tensor::Shape(std::move(extents)), repeats, limit, std::move(images),
                                             std::move(labels), std::move(starts), std::move(read));
  FUSIONLLM_RETURN_IF_ERROR(dataset->CheckLabels());
  return dataset;
}

}  // namespace fusionllm::data
