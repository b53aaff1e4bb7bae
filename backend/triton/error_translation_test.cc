#include "backend/triton/error_translation.h"

#include <gtest/gtest.h>

#include <string>

#include "backend/testing/fake_triton/fake_triton.h"

namespace seq2seq {
namespace {

struct Pair {
  ErrorCode ours;
  TRITONSERVER_Error_Code theirs;
  const char* text;
};

constexpr Pair kPairs[] = {
    {ErrorCode::kInvalidArgument, TRITONSERVER_ERROR_INVALID_ARG, "INVALID_ARG: why"},
    {ErrorCode::kUnavailable, TRITONSERVER_ERROR_UNAVAILABLE, "UNAVAILABLE: why"},
    {ErrorCode::kCancelled, TRITONSERVER_ERROR_CANCELLED, "CANCELLED: why"},
    {ErrorCode::kInternal, TRITONSERVER_ERROR_INTERNAL, "INTERNAL: why"},
    {ErrorCode::kUnsupported, TRITONSERVER_ERROR_UNSUPPORTED, "UNSUPPORTED: why"},
    {ErrorCode::kNotFound, TRITONSERVER_ERROR_NOT_FOUND, "NOT_FOUND: why"},
};

TEST(ErrorTranslationTest, TextBeginsWithTheCode) {
  FakeTriton triton;
  for (const Pair& pair : kPairs) {
    const ErrorHandle error = ToTriton(Error{pair.ours, "why"});
    EXPECT_EQ(TRITONSERVER_ErrorCode(error.get()), pair.theirs);
    EXPECT_STREQ(TRITONSERVER_ErrorMessage(error.get()), pair.text);
  }
  EXPECT_TRUE(triton.ProblemsAtEnd().empty());
}

TEST(ErrorTranslationTest, TextIsUtf8AndBounded) {
  FakeTriton triton;
  const ErrorHandle odd = ToTriton(Error{ErrorCode::kInternal, "read '\xff'"});
  EXPECT_STREQ(TRITONSERVER_ErrorMessage(odd.get()), "INTERNAL: read '?'");
  const ErrorHandle long_one = ToTriton(Error{ErrorCode::kInternal, std::string(100'000, 'x')});
  EXPECT_LT(std::string(TRITONSERVER_ErrorMessage(long_one.get())).size(), 5000U);
}

TEST(ErrorTranslationTest, TakesTritonsErrors) {
  FakeTriton triton;
  for (const Pair& pair : kPairs) {
    EXPECT_EQ(TakeError(TRITONSERVER_ErrorNew(pair.theirs, "why")), (Error{pair.ours, "why"}));
  }
  EXPECT_EQ(TakeError(TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNKNOWN, "x")).code,
            ErrorCode::kInternal);
  EXPECT_EQ(TakeError(TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_ALREADY_EXISTS, "x")).code,
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(ToStatus(nullptr));
  EXPECT_FALSE(ToStatus(TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "x")));
  EXPECT_TRUE(triton.ProblemsAtEnd().empty());
}

}  // namespace
}  // namespace seq2seq
