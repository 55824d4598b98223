export { diffArrays, diffLines, diffWordsWithSpace } from "diff";
