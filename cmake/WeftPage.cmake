# SPDX-License-Identifier: BSD-3-Clause
# Puts a report's page into C arrays: page.html with its style and its scripts in it,
# cut where the facts of a run go.
#
#     cmake -D FOLDER=trainer/report -D OUT=page_text.c -P WeftPage.cmake
file(READ ${FOLDER}/page.html html)
foreach(part page.css page_draw.js page_sections.js)
    file(READ ${FOLDER}/${part} text)
    string(REPLACE "@${part}@" "${text}" html "${html}")
endforeach()
string(FIND "${html}" "@FACTS@" cut)
if(cut LESS 0)
    message(FATAL_ERROR "${FOLDER}/page.html: no @FACTS@")
endif()
string(SUBSTRING "${html}" 0 ${cut} head)
math(EXPR cut "${cut} + 7")
string(SUBSTRING "${html}" ${cut} -1 tail)

set(text "#include \"trainer/report/page_facts.h\"\n")
foreach(half head tail)
    string(HEX "${${half}}" bytes)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(................................................................................)"
           "\\1\n" bytes "${bytes}")
    string(APPEND text "\nconst char wefti_page_${half}[] = {\n${bytes}0};\n")
endforeach()
file(WRITE ${OUT} "${text}")
