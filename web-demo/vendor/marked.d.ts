export { Lexer } from "marked";
