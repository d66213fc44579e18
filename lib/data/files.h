// The files behind a dataset: which ones a list of paths means, and positioned reads from them.
//
// Files are neither mapped nor read whole: a sample is fetched with pread(2) when a batch asks for it. A mapping would turn a file that
// shrinks or a disk that fails under a running job into SIGBUS; a read turns it into an error that names the file, and memory use does not
// depend on the size of the data. The page cache keeps repeated epochs fast.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/source_file.h"

namespace fusionllm::data {

inline constexpr size_t kMaxFiles = 1'000'000;
inline constexpr int kMaxFolderDepth = 64;

// Which files found inside a folder belong to the dataset, by their names. Files that are listed by name always belong.
struct FileFilter {
  std::function<bool(absl::string_view file_name)> accepts;  // null: every file
  absl::string_view description;                             // of such a file: "file of token ids (*.bin)"; outlives the filter
};

// The files that `paths` mean: a file is itself; a folder is its files at any depth, sorted by path components. Inside a folder hidden
// names (a leading dot) and what is neither a file nor a folder are skipped; a link counts as what it points to (Kubernetes mounts
// ConfigMaps as links). A folder that several names lead to is read once: where it lies, if that is below the folder, else by the link that
// comes first. Relative paths start at `base_folder`.
// Blocks on the file system.
// Errors: NotFound for a missing path; InvalidArgument for an empty list, a folder without a fitting file, a path that is neither file nor
// folder, a link in a folder that leads nowhere, more than kMaxFiles files or kMaxFolderDepth levels. Messages name the path; that of
// a missing one names the first files of the folder in which it should be.
absl::StatusOr<std::vector<std::string>> ExpandPaths(std::span<const std::string> paths, absl::string_view base_folder,
                                                     const FileFilter& filter = {});

// What a dataset was made of, to be reported once: counts and the first ones.
struct FilesRead {
  struct File {
    std::string path;
    int64_t bytes = 0;
  };
  struct Skipped {
    std::string path, why;
  };
  struct Identity {  // of a file, whatever it is called: through links, "./", another folder
    uint64_t device = 0, inode = 0;
    auto operator<=>(const Identity&) const = default;
  };
  struct TokenIds {       // as they were read at the start of the data
    int64_t bits = 0;     // of one id
    int64_t count = 0;    // of all ids
    int64_t checked = 0;  // of these the rest is reported
    int64_t min_id = 0, max_id = 0, distinct = 0;
  };
  int64_t count = 0, bytes = 0;
  std::optional<TokenIds> ids;       // of kind tokens
  std::vector<File> first;           // at most kMaxListed, in the order in which they are read
  std::vector<Identity> identities;  // of all, in that order
  int64_t skipped_count = 0;
  std::vector<Skipped> skipped;  // at most kMaxSkippedListed
  std::string folder;  // below which all of them lie, those that were skipped, too; empty: in none but the root, or there are none

  void Add(const base::SourceFile& file);
  void Skip(std::string path, std::string why);
  // "a/b.txt", as it is called in `folder`.
  std::string NameOf(absl::string_view path) const;

 private:
  void Cover(absl::string_view path);
};
inline constexpr size_t kMaxListed = 200;
inline constexpr size_t kMaxSkippedListed = 10;

// Some of a dataset's files: how many, and the names (FilesRead::NameOf) of those that are listed.
struct FileSample {
  int64_t count = 0;
  std::vector<std::string> names;
};
// Those of `files` that are files of `others`, too; and those that stand in `files` more than once.
FileSample SharedFiles(const FilesRead& files, const FilesRead& others);
FileSample RepeatedFiles(const FilesRead& files);

struct Copy {
  std::string name, of;  // FilesRead::NameOf
  int64_t bytes = 0;
};
// Files whose bytes are those of another: of `files` of an earlier one, or of one of `others`. Of those that are listed, without links to
// the same file, which the two above tell. Compared are their sizes, and 64 KiB at both ends. Blocks on the file system; what cannot
// be read is no copy.
std::vector<Copy> CopiedFiles(const FilesRead& files);
std::vector<Copy> CopiesOf(const FilesRead& files, const FilesRead& others);

// Opens all of `paths`; keeps descriptors when there are few files.
absl::StatusOr<std::vector<base::SourceFile>> OpenFiles(std::span<const std::string> paths);

}  // namespace fusionllm::data
