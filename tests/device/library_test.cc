#include "device/library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/nccl_api.h"
#include "dhisparse/device.h"

namespace dhs {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kMissing[] = "libdhs_that_nobody_has.so.9";
constexpr char kPresent[] = "libm.so.6";

std::string words_of(const absl::Status& status) { return std::string(status.message()); }

TEST(Library, calls_a_function_of_a_library_that_it_loads) {
  const absl::StatusOr<Library> library = Library::load(kPresent);
  ASSERT_TRUE(library.ok()) << library.status();
  double (*root)(double) = nullptr;
  ASSERT_TRUE(library->find("sqrt", root).ok());
  EXPECT_EQ(root(9.0), 3.0);
}

TEST(Library, a_missing_one_is_not_found_in_the_loaders_words_with_a_remedy) {
  const absl::Status status = Library::load(kMissing).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(words_of(status), AllOf(HasSubstr(kMissing), HasSubstr("cannot open shared object"),
                                      HasSubstr("LD_LIBRARY_PATH")));
}

TEST(Library, a_missing_function_names_it_and_its_library) {
  const absl::StatusOr<Library> library = Library::load(kPresent);
  ASSERT_TRUE(library.ok());
  const absl::Status status = library->symbol("dhs_square_root").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(words_of(status), AllOf(HasSubstr("libm.so.6 lacks dhs_square_root"),
                                      HasSubstr("undefined symbol"), HasSubstr("newer version")));
}

TEST(LibrarySymbol, is_null_when_the_library_or_the_function_is_missing) {
  EXPECT_NE(load_library_symbol(kPresent, "sqrt"), nullptr);
  EXPECT_EQ(load_library_symbol(kPresent, "dhs_square_root"), nullptr);
  EXPECT_EQ(load_library_symbol(kMissing, "sqrt"), nullptr);
}

TEST(NcclApi, says_which_library_or_function_is_missing) {
  EXPECT_THAT(words_of(NcclApi::load(kMissing).status()), HasSubstr(kMissing));
  EXPECT_THAT(words_of(NcclApi::load(kPresent).status()),
              HasSubstr("libm.so.6 lacks ncclGetUniqueId"));
}

}  // namespace
}  // namespace dhs
