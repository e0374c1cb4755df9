"""The repositories Debian's Bazel 4.2.3 itself wants, none from the network."""

# Debian's rules_cc does not load under Debian's Bazel, whose own C++ rules are
# what it would wrap anyway.
_RULES_CC = """
cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library
"""

# Every test has an implicit dependency on this label; only `bazel coverage`
# would run it.
_COVERAGE = """
filegroup(
    name = "coverage_report_generator",
    visibility = ["//visibility:public"],
)
"""

def _inline_impl(ctx):
    for path, text in ctx.attr.files.items():
        ctx.file(path, text)

_inline_repository = repository_rule(
    implementation = _inline_impl,
    attrs = {"files": attr.string_dict()},
)

def _folder_impl(ctx):
    folder = ctx.path(ctx.attr.path)
    if not folder.exists:
        fail(("%s was not found. Install the Debian package that has it:\n" +
              "    apt-get install %s\n" +
              "or run ./bazelw, which installs all that is missing.") %
             (ctx.attr.path, ctx.attr.debian_package))
    for entry in folder.readdir():
        if entry.basename != "WORKSPACE":
            ctx.symlink(entry, entry.basename)

_folder_repository = repository_rule(
    implementation = _folder_impl,
    attrs = {
        "debian_package": attr.string(mandatory = True),
        "path": attr.string(mandatory = True),
    },
)

def debian_bazel_rules():
    """Declares what the built-in rules of Bazel 4.2.3 refer to."""
    _inline_repository(
        name = "rules_cc",
        files = {
            "cc/BUILD.bazel": "",
            "cc/defs.bzl": _RULES_CC,
        },
    )
    _inline_repository(
        name = "remote_coverage_tools",
        files = {"BUILD.bazel": _COVERAGE},
    )
    _folder_repository(
        name = "bazel_skylib",
        debian_package = "bazel-skylib",
        path = "/usr/share/bazel/tools/skylib",
    )
    _folder_repository(
        name = "rules_java",
        debian_package = "bazel-rules-java",
        path = "/usr/share/bazel/rules/java",
    )
    _folder_repository(
        name = "rules_proto",
        debian_package = "bazel-rules-proto",
        path = "/usr/share/bazel/rules/proto",
    )
