// The table of folders in docs/design/folders.md lists exactly the folders that exist.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/tidy/finding.h"

namespace fusionllm::tidy {

// Folders are those at the root and those below lib/ and services/; names that start with a dot are left out. A row of the table is a
// line that starts with "| `FOLDER/` |" and says something in its second column.
// Rule, by name: folder-table (a folder without a row, a row without a folder, a folder in two rows, a row that says nothing).
std::vector<Finding> CheckFolderTable(const SourceFile& readme, const std::set<std::string>& files);

}  // namespace fusionllm::tidy
