/** A style sheet as a module: the build gives its text. */
declare module "*.css" {
  const text: string;
  export default text;
}
