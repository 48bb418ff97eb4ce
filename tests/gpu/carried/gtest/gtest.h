// The part of GoogleTest that tests/kernels uses, for machines without it: same names, same
// meaning. Death tests do not run: they are counted and the count is printed.
#pragma once

#include <cmath>
#include <sstream>
#include <string>

#include "gtest/print_value.h"

namespace testing {

// Text in pieces.
class Message {
 public:
  template <class T>
  Message& operator<<(const T& part) {
    std::ostringstream out;
    out << part;
    text_ += out.str();
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

template <class T>
std::string PrintToString(const T& value) {
  return internal::printed(value);
}

class Test {
 public:
  virtual ~Test() = default;
  virtual void SetUp() {}
  virtual void TearDown() {}
  virtual void TestBody() = 0;
  // Of the test that is running.
  static bool HasFatalFailure();
  static bool HasFailure();
};

namespace internal {

// What a check found: empty when it held.
using Fault = std::string;

// A failure of the running test; `= Message` so that ASSERT_* can return it from a void function.
class Failure {
 public:
  Failure(const char* file, int line, const Fault& fault, bool is_fatal)
      : file_(file), line_(line), fault_(fault), is_fatal_(is_fatal) {}
  void operator=(const Message& message) const;

 private:
  const char* file_;
  int line_;
  const Fault fault_;
  const bool is_fatal_;
};

using MakeTest = Test* (*)();
bool register_test(const char* suite, const char* name, MakeTest make);

// Always false: a death test is not run.
bool runs_death_test(const char* text);

class ScopedTrace {
 public:
  ScopedTrace(const char* file, int line, const Message& message);
  ~ScopedTrace();
};
inline Message as_message(const Message& message) { return message; }
template <class T>
Message as_message(const T& part) {
  return Message() << part;
}

template <class Holds, class A, class B>
Fault compare(const char* what, Holds holds, const A& a, const B& b) {
  if (holds(a, b)) return {};
  return std::string(what) + "\n    left:  " + printed(a) + "\n    right: " + printed(b);
}

inline Fault near(const char* what, double a, double b, double distance) {
  if (std::abs(a - b) <= distance) return {};
  return compare(
      what, [](double, double) { return false; }, a, b);
}

// As GoogleTest: 4 units in the last place.
bool almost_equal(float a, float b);

// Null is the same as null only.
bool same_text(const char* a, const char* b);

inline Fault is_true(const char* what, bool holds) {
  return holds ? Fault() : std::string(what) + " does not hold";
}

}  // namespace internal

void InitGoogleTest(int* argc, char** argv);
int run_all_tests();

}  // namespace testing

#define TEST_CLASS_(suite, name) suite##_##name##_Test
#define TEST_F_(suite, name, Base)                                                        \
  class TEST_CLASS_(suite, name) : public Base {                                          \
   public:                                                                                \
    static ::testing::Test* make() { return new TEST_CLASS_(suite, name); }               \
    void TestBody() override;                                                             \
  };                                                                                      \
  [[maybe_unused]] static const bool suite##_##name##_is_registered =                     \
      ::testing::internal::register_test(#suite, #name, &TEST_CLASS_(suite, name)::make); \
  void TEST_CLASS_(suite, name)::TestBody()
#define TEST(suite, name) TEST_F_(suite, name, ::testing::Test)
#define TEST_F(suite, name) TEST_F_(suite, name, suite)

#define CHECK_(fault, on_failure, is_fatal)                                           \
  switch (0)                                                                          \
  case 0:                                                                             \
  default:                                                                            \
    if (const ::testing::internal::Fault fault_ = (fault); fault_.empty())            \
      ;                                                                               \
    else                                                                              \
      on_failure ::testing::internal::Failure(__FILE__, __LINE__, fault_, is_fatal) = \
          ::testing::Message()
#define EXPECT_(fault) CHECK_(fault, , false)
#define ASSERT_(fault) CHECK_(fault, return, true)

#define COMPARE_(a, op, b)      \
  ::testing::internal::compare( \
      #a " " #op " " #b, [](const auto& x, const auto& y) { return x op y; }, a, b)
#define SAME_TEXT_(a, b) \
  ::testing::internal::compare(#a " == " #b, &::testing::internal::same_text, a, b)
#define NEAR_(a, b, distance) ::testing::internal::near(#a " ~ " #b, a, b, distance)
#define FLOAT_EQ_(a, b) \
  ::testing::internal::compare(#a " ~ " #b, &::testing::internal::almost_equal, a, b)
#define TRUE_(a) ::testing::internal::is_true(#a, static_cast<bool>(a))
#define FALSE_(a) ::testing::internal::is_true("not " #a, !static_cast<bool>(a))

#define EXPECT_EQ(a, b) EXPECT_(COMPARE_(a, ==, b))
#define EXPECT_NE(a, b) EXPECT_(COMPARE_(a, !=, b))
#define EXPECT_LT(a, b) EXPECT_(COMPARE_(a, <, b))
#define EXPECT_LE(a, b) EXPECT_(COMPARE_(a, <=, b))
#define EXPECT_GT(a, b) EXPECT_(COMPARE_(a, >, b))
#define EXPECT_GE(a, b) EXPECT_(COMPARE_(a, >=, b))
#define EXPECT_TRUE(a) EXPECT_(TRUE_(a))
#define EXPECT_FALSE(a) EXPECT_(FALSE_(a))
#define EXPECT_NEAR(a, b, distance) EXPECT_(NEAR_(a, b, distance))
#define EXPECT_FLOAT_EQ(a, b) EXPECT_(FLOAT_EQ_(a, b))
#define EXPECT_STREQ(a, b) EXPECT_(SAME_TEXT_(a, b))

#define ASSERT_EQ(a, b) ASSERT_(COMPARE_(a, ==, b))
#define ASSERT_NE(a, b) ASSERT_(COMPARE_(a, !=, b))
#define ASSERT_LT(a, b) ASSERT_(COMPARE_(a, <, b))
#define ASSERT_LE(a, b) ASSERT_(COMPARE_(a, <=, b))
#define ASSERT_GT(a, b) ASSERT_(COMPARE_(a, >, b))
#define ASSERT_GE(a, b) ASSERT_(COMPARE_(a, >=, b))
#define ASSERT_TRUE(a) ASSERT_(TRUE_(a))
#define ASSERT_FALSE(a) ASSERT_(FALSE_(a))
#define ASSERT_NEAR(a, b, distance) ASSERT_(NEAR_(a, b, distance))
#define ASSERT_FLOAT_EQ(a, b) ASSERT_(FLOAT_EQ_(a, b))
#define ASSERT_STREQ(a, b) ASSERT_(SAME_TEXT_(a, b))

#define ADD_FAILURE() EXPECT_(::testing::internal::Fault("failed"))
#define FAIL() ASSERT_(::testing::internal::Fault("failed"))

#define EXPECT_DEATH(statement, text)                \
  if (!::testing::internal::runs_death_test(text)) { \
  } else {                                           \
    statement;                                       \
  }

#define TRACE_NAME_2_(line) scoped_trace_##line
#define TRACE_NAME_(line) TRACE_NAME_2_(line)
#define SCOPED_TRACE(part)                                      \
  const ::testing::internal::ScopedTrace TRACE_NAME_(__LINE__)( \
      __FILE__, __LINE__, ::testing::internal::as_message(part))
