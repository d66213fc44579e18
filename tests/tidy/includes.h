// Which folder may include which: the layers of the code, checked on the text of the #include lines.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/tidy/finding.h"

namespace fusionllm::tidy {

// The table in layers.txt. Lines, besides comments (#) and empty ones:
//   FOLDER: FOLDER...       files of the first may include files of the others (and of the first); `*` allows all
//   ban FOLDER: PREFIX...   no file of the folder, tests included, may include a path that starts so (`x$`: exactly x)
struct LayerTable {
  std::map<std::string, std::set<std::string>> allowed;
  std::map<std::string, std::vector<std::string>> banned;

  // An error names the line. A folder on the right side must have a line of its own, above: so the table cannot hold a cycle.
  static absl::StatusOr<LayerTable> Parse(absl::string_view text);
};

// Rules, by name (a line can lift them as bans.h says):
//   include-path   a quoted include of a repository file is its path from the root; "x.h" and "../x.h" are not, a missing file neither
//   layer          the include goes up, or sideways where the table has no arrow; or the file's folder is not in the table
//   layer-ban      the folder must not know that header at all
// Tests, benchmarks and testing/ folders may include every folder below lib/, but the bans hold for them too.
// `files` holds every path of the repository. Generated headers (*.pb.h) count as there when their .proto is.
std::vector<Finding> CheckIncludes(const SourceFile& file, const LayerTable& layers, const std::set<std::string>& files);

}  // namespace fusionllm::tidy
